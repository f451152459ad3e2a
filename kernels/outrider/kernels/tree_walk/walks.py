"""What a walk goes through, and where it led."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_GUESSES = 64
"""Guesses of one tree."""


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Verified trees, one behind the other.

    Row 0 of a tree is its sequence's last token, row ``i + 1`` its guess i, so it has one row more than guesses.

    Attributes:
        offsets: int32 [s + 1]; guesses ``offsets[i]`` to ``offsets[i + 1] - 1`` are of sequence i, 64 at most.
        guesses: int32 [guesses], tokens.
        parents: int32 [guesses], index of each guess's parent in its tree, which comes before it; -1 for the
            sequence's last token.
        drawn: int32 [guesses + s], the token that the target draws at each row; -1 where it could draw none.
    """

    offsets: Tensor
    guesses: Tensor
    parents: Tensor
    drawn: Tensor

    def check(self, depth: int) -> None:
        """ValueError where the tensors do not fit each other; only shapes, dtypes and devices are looked at."""
        guesses, sequences = self.guesses.numel(), self.offsets.numel() - 1
        shapes = {"offsets": sequences + 1, "guesses": guesses, "parents": guesses, "drawn": guesses + sequences}
        for name, size in shapes.items():
            given: Tensor = getattr(self, name)
            fits = given.shape == (size,) and given.dtype == torch.int32 and given.is_contiguous()
            if size < 0 or not fits or given.device != self.drawn.device:
                raise ValueError(
                    f"{name} are {given.dtype} {tuple(given.shape)} on {given.device}; they must be contiguous "
                    f"torch.int32 [{size}] on {self.drawn.device}"
                )
        if sequences < 0 or depth < 0:
            raise ValueError(f"{sequences} sequences to a depth of {depth}; neither may be below 0")


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """What verified trees yield.

    Attributes:
        rows: int32 [s, depth + 1], row 0 and the row of each accepted guess, in order; -1 behind them. Their keys and
            values are kept.
        counts: int32 [s], how many they are.
        tokens: int32 [s, depth + 1], the tokens that the target decided, as many; -1 behind them, and last where none
            could be drawn.
    """

    rows: Tensor
    counts: Tensor
    tokens: Tensor
