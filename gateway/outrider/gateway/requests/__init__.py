"""Requests for generations in the form that all APIs share, with the models and token ids that they need.

In come bodies that an API has read; out go a `Generation` and the token ids of its prompts. Streams, generation and
the APIs call it.
"""
