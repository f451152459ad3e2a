"""Files of JSON lines, each line with its number and the hash of the line before it."""
