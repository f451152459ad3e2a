"""Errors of model directories."""

from __future__ import annotations


class ModelError(ValueError):
    """A model cannot be loaded; the message is one sentence that names the file or field."""
