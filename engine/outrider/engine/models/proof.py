"""Checks on this machine that a model in strict mode is invariant to batching."""

from __future__ import annotations

from typing import Protocol

import torch
from outrider.engine.models.config import ModelConfig
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.invariance import NotInvariant
from outrider.kernels.pool import KvPool
from torch import Tensor

_CONTEXT, _GPU_CONTEXT = 37, 200
"""Tokens before the compared ones. Kernels of GPUs have another kernel, and other tiles, from 128 tokens on."""
_PATH = 5
_PAGE_SIZE = 16


class Decoder(Protocol):
    """The part of `outrider.engine.models.llama.LlamaModel` that the check uses."""

    config: ModelConfig
    device: torch.device

    def new_pool(self, pages: int, page_size: int) -> KvPool: ...  # noqa: D102
    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor: ...  # noqa: D102
    def logits(self, hidden: Tensor) -> Tensor: ...  # noqa: D102


def prove_invariance(model: Decoder) -> None:
    """Runs a few tokens as a chunk, one by one and as a path of a tree; compares the bits of their logits.

    Raises:
        NotInvariant: the bits differ.
    """
    length = min((_CONTEXT if model.device.type == "cpu" else _GPU_CONTEXT) + _PATH, model.config.context_length)
    path, pages = min(_PATH, length), range(-(-(length + _PATH) // _PAGE_SIZE))
    context = length - path
    ids = torch.arange(length, device=model.device) % model.config.vocab_size
    pool = model.new_pool(len(pages), _PAGE_SIZE)

    def run(tokens: Tensor, rows: SequenceRows) -> Tensor:
        batch = RaggedBatch.build([rows], _PAGE_SIZE, model.device)
        return model.logits(model.forward(tokens, batch, pool))

    chunk = run(ids, SequenceRows(length, 0, pages))[context:]
    singles = [run(ids[i : i + 1], SequenceRows(1, i, pages)) for i in range(context, length)]
    parents = [-1, *(2 * (i // 2) for i in range(2 * path - 2))]
    tree = run(ids[context:].repeat_interleave(2)[:-1], SequenceRows(2 * path - 1, context, pages, parents))[::2]
    if not torch.equal(chunk, torch.cat(singles)) or not torch.equal(chunk, tree):
        raise NotInvariant("the model's logits depend on how its rows are batched on this machine")
