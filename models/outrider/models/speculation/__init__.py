"""Guesses: draft trees, what a drafter is, and how trees are merged and cut. No torch, no transport."""

from outrider.models.speculation.drafter import Drafter, DrafterContext, DrafterError
from outrider.models.speculation.tree import DraftTree, MergedTree, merge

__all__ = ["DraftTree", "Drafter", "DrafterContext", "DrafterError", "MergedTree", "merge"]
