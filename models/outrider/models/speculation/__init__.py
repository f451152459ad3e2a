"""Guesses: draft trees, what a drafter is, and how trees are merged and cut. No transport."""

from outrider.models.speculation.drafter import Drafter, DrafterContext, DrafterError, HiddenDrafter, Opening
from outrider.models.speculation.tree import DraftTree, MergedTree, merge

__all__ = ["DraftTree", "Drafter", "DrafterContext", "DrafterError", "HiddenDrafter", "MergedTree", "Opening", "merge"]
