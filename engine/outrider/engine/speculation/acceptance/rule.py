"""Rules of acceptance: how a verified tree decides tokens. The plug-in group is `outrider.acceptance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation.trees.tree import MergedTree
from torch import Tensor


class AcceptanceError(ValueError):
    """A rule cannot work as configured; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class VerifiedTree:
    """One sampled sequence's guesses, with the target's logits and draws.

    Row 0 is the sequence's end; row ``i + 1`` is guess ``i``.

    Attributes:
        tree: the guesses.
        logits: float32 [rows, V] of the target, before temperature and truncation.
        sampling: the request's sampling parameters.
        dice: the request's dice. Drafters that give proposals do not roll these dice.
        position: absolute position of the token that row 0 decides; a guess's row decides the one ``depth`` further on.
        drawn: the target's draw at each row by ``dice``; each draw alone has the target's distribution.
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
    """Decides a token at each row; the answer then follows these tokens down the tree while the tree has them.

    A plug-in is a callable that takes the operator's options, a mapping, and returns a rule or raises
    `AcceptanceError`. Greedy requests need no rule: they follow the likeliest token.

    Attributes:
        name: name in the settings.
        lossy: whether answers may have another distribution than the target's.
        needs_proposals: whether the rule needs guesses with proposals, the distributions that they were drawn from.
        replacement: whether guesses have to be drawn with replacement.
    """

    name: str
    lossy: bool
    needs_proposals: bool
    replacement: bool

    def decide(self, verified: VerifiedTree) -> list[int]:
        """The decided token of each row; ``verified.drawn`` where the rule changes nothing."""
        ...
