"""Guesses: drafters, draft trees, and how trees are merged and cut. No transport."""

from outrider.models.speculation.acceptance import Acceptance, AcceptanceError, VerifiedTree
from outrider.models.speculation.drafter import (
    Drafter,
    DrafterContext,
    DrafterError,
    HiddenDrafter,
    Opening,
    PricedDrafter,
    ReadingDrafter,
    RememberingDrafter,
    RestingDrafter,
)
from outrider.models.speculation.proposals import Proposal
from outrider.models.speculation.tree import NO_GUESSES, DraftTree, MergedTree, merge

__all__ = [
    "NO_GUESSES",
    "Acceptance",
    "AcceptanceError",
    "DraftTree",
    "Drafter",
    "DrafterContext",
    "DrafterError",
    "HiddenDrafter",
    "MergedTree",
    "Opening",
    "PricedDrafter",
    "Proposal",
    "ReadingDrafter",
    "RememberingDrafter",
    "RestingDrafter",
    "VerifiedTree",
    "merge",
]
