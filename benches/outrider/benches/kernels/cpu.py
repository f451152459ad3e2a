"""Times the CPU's linear and tree_attention beside torch's own, alternately, so that other work falls on both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows, Tree
from outrider.kernels.linear import pack
from outrider.kernels.pool import KvPool
from outrider.kernels.shapes import ModelShape
from outrider.kernels.tree_attention import CpuPlan
from torch import Tensor
from torch.nn import functional

_TURN_S = 2e-3
_REPEATS = 60
Run = Callable[[], object]
Pair = tuple[Sequence[Run], Sequence[Run]]


@dataclass(frozen=True, slots=True)
class CpuTiming:
    """A measured matmul or attention.

    Attributes:
        op: the measured op.
        rows: of the step.
        seconds: ours, the lower quartile, since other processes only add to times.
        torch_seconds: torch's.
    """

    op: str
    rows: int
    seconds: float
    torch_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as quick ours is."""
        return self.torch_seconds / self.seconds


def measure(shape: ModelShape, rows: Sequence[int], context: int) -> Iterator[CpuTiming]:
    """Every matmul of ``shape`` in float32 and its own dtype, and attention behind ``context`` tokens in float32.

    As in a model's step, each layer has weights and pages of its own; times are of one layer.
    """
    with torch.inference_mode():
        for count in rows:
            for dtype in dict.fromkeys((torch.float32, shape.dtype)):
                for name, (outputs, inputs) in shape.matmuls.items():
                    layers = 1 if name == "logits" else shape.layers
                    op = f"linear {name} {str(dtype).removeprefix('torch.')}"
                    yield _timing(op, count, *linear(outputs, inputs, dtype, count, layers))
            yield _timing("tree_attention", count, *attention(shape, count, context))


def linear(outputs: int, inputs: int, dtype: torch.dtype, rows: int, layers: int) -> Pair:
    """A matmul with each layer's weight, ours and torch's."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(outputs, inputs, generator=generator).to(dtype) for _ in range(layers)]
    packed = [pack(weight, few_rows=True) for weight in weights]
    x = torch.randn(rows, inputs, generator=generator).to(dtype)
    return [partial(form, x) for form in packed], [partial(functional.linear, x, weight) for weight in weights]


def attention(shape: ModelShape, rows: int, context: int) -> Pair:
    """Attention of a binary tree, ours over pages and torch's over keys and values in its best layout."""
    pages = range(-(-(context + rows) // shape.page_size))
    pool = KvPool(shape.layers, len(pages), shape.page_size, shape.kv_heads, shape.head_dim)
    pool.data.normal_(generator=torch.Generator().manual_seed(1))
    parents = [-1, *((node - 1) // 2 for node in range(1, rows))]
    batch = RaggedBatch.build([SequenceRows(rows, context, pages, parents)], shape.page_size)
    plan = CpuPlan(batch, pool, shape.heads, torch.float32)
    plan.queries.normal_(generator=torch.Generator().manual_seed(2))
    queries = torch.view_as_real(plan.queries).flatten(1, 2).flatten(2).transpose(0, 1)[None].contiguous()
    group = shape.heads // shape.kv_heads
    by_layer = pool.data[:, : context + rows].permute(0, 2, 3, 1, 4).repeat_interleave(group, 2)
    mask = None if rows == 1 else _mask(Tree.from_parents(parents), rows, context)
    return (
        [partial(plan.attend, layer) for layer in range(shape.layers)],
        [partial(_attend, queries, keys[None], values[None], mask) for keys, values in by_layer],
    )


def _attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    return functional.scaled_dot_product_attention(queries, keys, values, mask, scale=1.0)


def _mask(tree: Tree, rows: int, context: int) -> Tensor:
    """The mask added to scores: float32 [1, 1, rows, context + rows]."""
    mask = torch.zeros(rows, context + rows)
    mask[:, context:].masked_fill_(~torch.from_numpy(tree.visible(rows)), float("-inf"))
    return mask[None, None]


def _timing(op: str, rows: int, ours: Sequence[Run], theirs: Sequence[Run]) -> CpuTiming:
    rounds = max(1, int(_TURN_S / _seconds(ours, 3) / len(ours)))
    times = [(_seconds(ours, rounds), _seconds(theirs, rounds)) for _ in range(_REPEATS)]
    first, second = (statistics.quantiles(column)[0] for column in zip(*times, strict=True))
    return CpuTiming(op, rows, first, second)


def _seconds(runs: Sequence[Run], rounds: int) -> float:
    begin = time.perf_counter()
    for _ in range(rounds):
        for run in runs:
            run()
    return (time.perf_counter() - begin) / rounds / len(runs)
