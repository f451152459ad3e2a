"""`outrider trace-steps`: the time line of one request."""
