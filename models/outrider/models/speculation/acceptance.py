"""What an acceptance rule is: how a verified tree decides tokens. The plug-in group is `outrider.acceptance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from outrider.models.sampling import Dice, Sampling
from outrider.models.speculation.tree import MergedTree
from torch import Tensor


class AcceptanceError(ValueError):
    """A rule cannot work as configured; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class VerifiedTree:
    """One sampled sequence's guesses and what the target says at each of them.

    Row 0 is the sequence's end; row ``i + 1`` is guess ``i``.

    Attributes:
        tree: the guesses.
        logits: float32 [rows, V] of the target, before temperature and truncation.
        sampling: how the request draws.
        dice: of the request. No drafter that gives proposals has rolled them.
        position: absolute position of the token that row 0 decides; a guess's row decides one ``depth`` further.
        drawn: what the target draws at each row by those dice, one row as good as alone.
    """

    tree: MergedTree
    logits: Tensor
    sampling: Sampling
    dice: Dice
    position: int
    drawn: list[int]

    def positions(self) -> list[int]:
        """Absolute position of the token that each row decides."""
        return [self.position, *(self.position + depth for depth in self.tree.depths)]


class Acceptance(Protocol):
    """Decides a token at each row; the answer then follows these tokens down the tree for as long as they are in it.

    A plug-in is a callable that takes the operator's options, a mapping, and returns a rule, or raises
    `AcceptanceError`. Greedy requests do not come here: they follow the likeliest token.

    Attributes:
        name: as in the settings.
        lossy: whether answers may have another distribution than the target's.
        needs_proposals: whether it can use only guesses whose tree tells what they were drawn from.
        replacement: whether those have to be drawn with replacement.
    """

    name: str
    lossy: bool
    needs_proposals: bool
    replacement: bool

    def decide(self, verified: VerifiedTree) -> list[int]:
        """A token for each row; ``verified.drawn`` where the rule has nothing to say."""
        ...
