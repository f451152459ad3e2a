"""Errors of training."""

from __future__ import annotations


class TrainingError(ValueError):
    """A drafter cannot be trained or measured as asked; the message is one sentence that says why."""
