"""Hidden states of the target, as steps return them and drafters take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class States(NamedTuple):
    """States of some tokens.

    Attributes:
        layers: what they enter, ascending (see `outrider.engine.speculation.Traits`).
        rows: float32 [tokens, layers, hidden_size].
    """

    layers: tuple[int, ...]
    rows: Tensor

    def at(self, rows: Sequence[int] | slice) -> States:
        """The states of some of the tokens, ascending; a view of the first ones, or of a slice."""
        if not isinstance(rows, slice) and rows[-1] == len(rows) - 1:
            rows = slice(len(rows))
        return States(self.layers, self.rows[rows])

    def of(self, layers: tuple[int, ...]) -> Tensor:
        """The states of ``layers``, float32 [tokens, layers, hidden_size]."""
        return self.rows if layers == self.layers else self.rows[:, [self.layers.index(layer) for layer in layers]]
