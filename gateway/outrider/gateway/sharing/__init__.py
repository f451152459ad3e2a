"""Answers that several requests share, since they ask for the very same."""

from __future__ import annotations

from outrider.gateway.sharing.pool import Pool
from outrider.gateway.sharing.reader import Reader

__all__ = ["Pool", "Reader"]
