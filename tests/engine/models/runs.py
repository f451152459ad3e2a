"""Ways to bring a sequence through a model that must come to the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from outrider.native.levels import supported_levels
from torch import Tensor

PAGE_SIZE = 8


def step(model: LlamaModel, pool: KvPool, parts: Sequence[tuple[Tensor, SequenceRows]]) -> list[Tensor]:
    """One forward over all parts; the logits of each."""
    batch = RaggedBatch.build([rows for _, rows in parts], pool.page_size, pool.data.device)
    logits = model.logits(model.forward(torch.cat([ids for ids, _ in parts]), batch, pool))
    return list(logits.split([len(ids) for ids, _ in parts]))


def chunks(model: LlamaModel, pool: KvPool, ids: Tensor, lengths: Sequence[int], pages: Sequence[int]) -> Tensor:
    """Logits of ``ids`` when they come in causal chunks of ``lengths``."""
    logits, context = [], 0
    for part in ids.split(list(lengths)):
        logits += step(model, pool, [(part, SequenceRows(len(part), context, pages))])
        context += len(part)
    return torch.cat(logits)


def whole(model: LlamaModel, ids: Tensor) -> Tensor:
    """Logits of ``ids`` as one chunk in a new pool."""
    pages = -(-len(ids) // PAGE_SIZE)
    return chunks(model, model.new_pool(pages, PAGE_SIZE), ids, [len(ids)], range(pages))


def multiplies_bfloat16() -> bool:
    """Whether compiled code multiplies bfloat16 on this CPU, at the level that is forced where one is."""
    return bool({level.name for level in supported_levels()} & {"amx", "avx512bf16"})
