"""tree_attention in plain torch: a few matrix products a piece, over views of consecutive pages."""

from __future__ import annotations

import torch
from outrider.kernels.tree_attention.plan import AttentionPlan, PieceViews
from torch import Tensor

_LANES = 32
"""Elements of float32 that torch's widest vector loops take at once; what is left over may get other bits."""
_PARALLEL_FROM = 32768
"""Elements from which torch divides an elementwise operator between threads."""


def tree_attention(plan: AttentionPlan, layer: int) -> Tensor:
    """Attention of the step's rows in one layer, over keys and values already written.

    Args:
        plan: of the step; its queries are rotated and scaled, by 1 / sqrt(head_dim) or, with a tiling, that times
            log2(e).
        layer: index of the layer.

    Returns:
        [rows, heads * head_dim], a buffer that the next layer overwrites.
    """
    attend = _attend if plan.tiling is None else _attend_in_blocks
    for views in plan.views:
        if views.piece.gathered is None:
            keys, values = views.keys[layer], views.values[layer]
        else:
            keys, values = plan.pool.gather(layer, views.piece.gathered)
        result = attend(views, keys, values)
        views.out.copy_(result.view(views.out.shape))
    return plan.out


def _attend(views: PieceViews, keys: Tensor, values: Tensor) -> Tensor:
    scores = torch.bmm(views.queries, keys)
    if views.mask is not None:
        scores[:, :, views.piece.masked_from :].add_(views.mask)
    return torch.bmm(scores.softmax(-1), values)


def _attend_in_blocks(views: PieceViews, keys: Tensor, values: Tensor) -> Tensor:
    """The same with sums in the order of positions, which columns that weigh nothing do not change."""
    flat, weights = _whole_vectors(views.queries.shape[0], views.queries.shape[1], keys.shape[2])
    torch.bmm(views.queries, keys, out=weights)
    if views.mask is not None:
        weights[:, : views.seen, views.piece.masked_from :].add_(views.mask)
    weights.sub_(weights.amax(-1, keepdim=True))
    flat.exp2_()
    first, *rest = views.piece.blocks
    total = torch.bmm(weights[:, :, slice(*first)], values[:, slice(*first)])
    for block in rest:
        total.baddbmm_(weights[:, :, slice(*block)], values[:, slice(*block)])
    total.div_(weights.cumsum(-1)[:, :, -1:])
    return total[:, : views.seen]


def _whole_vectors(*shape: int) -> tuple[Tensor, Tensor]:
    """A buffer that elementwise loops cover in whole vectors on any thread, and the tensor of ``shape`` in it."""
    size = 1
    for extent in shape:
        size *= extent
    shares = min(torch.get_num_threads(), -(-size // _PARALLEL_FROM))
    unit = _LANES * shares
    flat = torch.empty(-(-size // unit) * unit)
    return flat, flat[:size].view(shape)
