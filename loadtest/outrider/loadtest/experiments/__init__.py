"""One program for each question: `python -m outrider.loadtest NAME`."""
