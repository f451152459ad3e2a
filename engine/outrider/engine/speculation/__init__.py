"""Guesses: drafters, draft trees, and how trees are merged and cut. No transport."""

from outrider.engine.speculation.acceptance.rule import Acceptance, AcceptanceError, VerifiedTree
from outrider.engine.speculation.drafters.drafter import (
    Drafter,
    DrafterContext,
    DrafterError,
    Opening,
    Traits,
)
from outrider.engine.speculation.trees.proposals import Proposal
from outrider.engine.speculation.trees.tree import NO_GUESSES, DraftTree, MergedTree, merge

__all__ = [
    "NO_GUESSES",
    "Acceptance",
    "AcceptanceError",
    "DraftTree",
    "Drafter",
    "DrafterContext",
    "DrafterError",
    "MergedTree",
    "Opening",
    "Proposal",
    "Traits",
    "VerifiedTree",
    "merge",
]
