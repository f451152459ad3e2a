"""The definition of tree_attention, one row at a time, in float64."""

from __future__ import annotations

import torch
from outrider.kernels.batch import RaggedBatch, row_slots
from outrider.kernels.pool import KvPool
from torch import Tensor


def tree_attention(
    queries: Tensor,
    pool: KvPool,
    layer: int,
    batch: RaggedBatch,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Attention of [rows, heads, head_dim] queries over the tokens that each row sees: float64 [rows, heads, head_dim].

    Args:
        queries: rotated.
        pool: keys and values.
        layer: index of the layer.
        batch: the step.
        scale: of the scores.
        window: the latest positions that a row sees, its own included; None is all.
    """
    out = torch.empty(queries.shape, dtype=torch.float64, device=queries.device)
    for start, sequence, tree in zip(batch.starts, batch.sequences, batch.trees, strict=True):
        slots = row_slots(sequence, batch.page_size, 0, sequence.context + sequence.nodes).tolist()
        for row in range(sequence.rows):
            node = sequence.nodes - sequence.rows + row
            path = (1 << node + 1) - 1 if tree is None else tree.paths[node]
            visible_slots = slots[: sequence.context]
            visible_slots += [slots[sequence.context + j] for j in range(sequence.nodes) if path >> j & 1]
            latest = visible_slots if window is None else visible_slots[-window:]
            out[start + row] = _attend(queries[start + row], pool, layer, latest, scale)
    return out


def _attend(query: Tensor, pool: KvPool, layer: int, visible_slots: list[int], scale: float) -> Tensor:
    rows = pool.data[layer, visible_slots].double()
    if pool.scales is not None:
        rows *= pool.scales[layer, visible_slots, :, :, None]
    keys, values = rows.unbind(1)
    group = query.shape[0] // pool.kv_heads
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.einsum("hd,shd->hs", query.double(), keys) * scale
    return torch.einsum("hs,shd->hd", scores.softmax(-1), values)
