"""Errors of a model's text files, and of texts."""

from __future__ import annotations


class TextError(ValueError):
    """A tokenizer file, text, id or chat is invalid; the message is one sentence for the user."""


class NotRendered(TextError):
    """A chat was not rendered, and it may be at another try: the process for it does not start, or was killed."""
