"""What can be wrong with a model directory."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be loaded; the message is one sentence that names the file or field."""
