"""ranking: the largest of a row, and their shares of the whole."""
