"""Errors of a model's text files, and of texts."""

from __future__ import annotations


class TextError(ValueError):
    """A tokenizer file, text, id or chat is invalid; the message is one sentence for the user."""
