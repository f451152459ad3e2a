"""Requests for generations in the form that all front doors share, with the models and token ids that they need.

In come bodies that a door has read; out go a `Generation` and the token ids of its prompts. Streams, generation and
the doors call it.
"""
