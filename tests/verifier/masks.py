"""The tokens that a batch of edits allows."""

from __future__ import annotations

import torch
from outrider.verifier.logits.edits import EditBatch


def bits(batch: EditBatch, rows: int, vocabulary: int) -> list[list[bool] | None]:
    """Whether each token may be drawn, at each row; None for a row that allows all."""
    words = batch.allowed(rows, torch.device("cpu"))
    assert words is not None
    free = (words == -1).all(1).tolist()
    return [
        None if keeps_all else [bool(row[token // 32] >> token % 32 & 1) for token in range(vocabulary)]
        for keeps_all, row in zip(free, words.tolist(), strict=True)
    ]
