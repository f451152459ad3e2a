"""The tokens that a batch of edits allows, and a grammar that allows everything."""

from __future__ import annotations

import torch
from outrider.engine.logits.edits import EditBatch, Mask
from outrider.engine.speculation import MergedTree

ALL = b"\xff" * 64


def bits(batch: EditBatch, rows: int, vocabulary: int) -> list[list[bool] | None]:
    """Whether each token may be drawn, at each row; None for a row that allows all."""
    words = batch.allowed(rows, torch.device("cpu"))
    assert words is not None
    free = (words == -1).all(1).tolist()
    return [
        None if keeps_all else [bool(row[token // 32] >> token % 32 & 1) for token in range(vocabulary)]
        for keeps_all, row in zip(free, words.tolist(), strict=True)
    ]


class Lax:
    """A grammar that allows everything, and a guide of one sequence in it."""

    failure, slow = None, False

    def guide(self, tokens: list[int], prompt: int, stop_ids: frozenset[int]) -> Lax:
        made = type(self)()
        made.tokens, made.prompt = tokens, prompt
        return made

    def ready(self) -> bool:
        return True

    def prune(self, guesses: MergedTree) -> MergedTree:
        return guesses

    def edit(self, batch: EditBatch, row: int, guesses: MergedTree) -> None:
        for node, depth in enumerate([0, *guesses.depths]):
            batch.allow(row + node, self.mask(len(self.tokens) + depth))

    def mask(self, place: int) -> Mask:
        return Mask(self.tokens, place, ALL)
