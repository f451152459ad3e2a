"""Experiments, each a program: `python -m outrider.loadtest NAME`."""
