"""Attention beside torch's, which reads each sequence's keys and values from one tensor."""

from __future__ import annotations

import torch
from outrider.benches.kernels.cases import Case, Step
from outrider.kernels.batch import RaggedBatch, SequenceRows, Tree
from outrider.kernels.kv_quant import LARGEST_QUANT
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.triton import TritonPlan
from torch import Tensor
from torch.nn import functional

MOST_NODES = 64
"""Rows of a sequence that are a tree; more are a causal chunk."""


def parents(nodes: int) -> list[int] | None:
    """Parents of a binary tree, or None for a causal chunk."""
    return None if nodes > MOST_NODES else [-1, *((node - 1) // 2 for node in range(1, nodes))]


def plan(case: Case, device: torch.device) -> tuple[TritonPlan, KvPool]:
    """The step's plan over a pool of noise, its queries written."""
    shape, step = case.shape, case.step
    pages = -(-(step.context + step.nodes) // shape.page_size)
    pool = KvPool(1, step.sequences * pages, shape.page_size, shape.kv_heads, shape.head_dim, shape.kv_dtype, device)
    if shape.kv_dtype in LARGEST_QUANT:
        pool.data.copy_(torch.randint(-3, 4, pool.data.shape, device=device).float())
    else:
        pool.data.normal_()
    if pool.scales is not None:
        pool.scales.fill_(1.0)
    sequences = [
        SequenceRows(step.nodes, step.context, range(i * pages, (i + 1) * pages), parents(step.nodes))
        for i in range(step.sequences)
    ]
    batch = RaggedBatch.build(sequences, shape.page_size, device)
    attention_plan = TritonPlan(batch, pool, shape.heads, shape.dtype, strict=case.strict)
    attention_plan.queries.normal_().mul_(attention_plan.scale)
    return attention_plan, pool


def dense(case: Case, attention_plan: TritonPlan, pool: KvPool) -> tuple[Tensor, ...]:
    """Queries, keys and values [sequences, heads, rows or tokens, head_dim], and the mask."""
    shape, step = case.shape, case.step
    queries = (
        attention_plan.queries.div(attention_plan.scale)
        .view(step.sequences, step.nodes, shape.heads, shape.head_dim)
        .transpose(1, 2)
        .contiguous()
    )
    by_sequence = pool.data[0].view(step.sequences, -1, 2, shape.kv_heads, shape.head_dim)
    keys_values = by_sequence[:, : step.context + step.nodes].to(shape.dtype).permute(2, 0, 3, 1, 4).contiguous()
    return queries, keys_values[0], keys_values[1], mask(step).to(queries.device)


def mask(step: Step) -> Tensor:
    """Which tokens each row sees: bool [nodes, context + nodes]."""
    visible = torch.ones(step.nodes, step.context + step.nodes, dtype=torch.bool)
    tree_parents = parents(step.nodes)
    own = torch.ones(step.nodes, step.nodes, dtype=torch.bool).tril_()
    visible[:, step.context :] = (
        own if tree_parents is None else torch.from_numpy(Tree.from_parents(tree_parents).visible(step.nodes))
    )
    return visible


def torch_attention(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """torch's results, [rows, heads * head_dim]."""
    masked = None if len(visible) == 1 else visible
    out = functional.scaled_dot_product_attention(queries, keys, values, masked, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1).flatten(1)
