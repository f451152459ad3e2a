"""What can go wrong with a model's text files, or with a text."""

from __future__ import annotations


class TextError(ValueError):
    """A tokenizer file, text, id or chat that cannot be used; the message is one sentence for a person."""
