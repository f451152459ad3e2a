"""Answers that are compared, and an engine that answers at once."""
