"""Runs steps of few rows as CUDA graphs, captured once for each size.

A step of a small batch is hundreds of launches, each of which takes the CPU longer than the GPU. A graph needs the same
tensors each time, so a step is copied into the tensors of the next larger size. Unused rows and items do nothing, and
no kernel lets a row's bits depend on the number of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.tables import Capacity
from outrider.kernels.tree_attention.triton import TritonPlan
from outrider.models.operators.eager import EagerForward
from torch import Tensor

Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Captures a step: returns a function that runs it again, and the tensor of its result."""

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640)
_LEAST = 16


class CudaCapture:
    """Captures steps on a CUDA device; graphs share memory, since they run one after another."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """See `Capture`. Runs the step once before the capture, so that all its kernels are loaded."""
        with torch.cuda.device(self._device):
            aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                run()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            # Other threads copy pages meanwhile. In the default mode, "global", a call of theirs ends the capture.
            with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
                out = run()
        return graph.replay, out


class _Size(NamedTuple):
    room: Capacity
    program: int
    pool: int


class _Step:
    """A captured step of one size, with its tensors."""

    def __init__(self, eager: EagerForward, plan: TritonPlan, size: _Size, pool: KvPool, capture: Capture) -> None:
        device, rows = pool.data.device, size.room.rows
        self._ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self._plan, self._pool = plan.with_capacity(size.room), pool
        tables = self._plan.work.tables
        tables.slots.fill_(-1)
        self._run, self._out = capture(lambda: eager.run(self._ids, tables.positions, tables.slots, self._plan, pool))

    def __call__(self, ids: Tensor, plan: TritonPlan) -> Tensor:
        self._plan.load(plan.step)
        self._ids[: len(ids)].copy_(ids)
        self._run()
        return self._out[: len(ids)].clone()


class GraphForward:
    """Runs steps of few rows as graphs, from the second step of a size on, and other steps eagerly.

    Args:
        eager: runs a step as it comes.
        capture: makes a graph of a step.
        rows: sizes of graphs, ascending; steps of more rows run as they come.
        most: graphs that are kept.
    """

    def __init__(self, eager: EagerForward, capture: Capture, rows: Sequence[int] = ROWS, most: int = 96) -> None:
        self._eager, self._capture, self._rows, self._most = eager, capture, rows, most
        self.kv_dtypes = eager.kv_dtypes
        self._steps: OrderedDict[_Size, _Step | None] = OrderedDict()

    @torch.inference_mode()
    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor:
        """See `outrider.models.llama.Forward`."""
        plan = self._eager.plan(batch, pool)
        size = _size(plan, pool, self._rows) if isinstance(plan, TritonPlan) else None
        if size is None or not isinstance(plan, TritonPlan) or size not in self._steps:
            if size is not None:
                self._remember(size, None)
            return self._eager.run(ids, batch.positions, batch.slots, plan, pool)
        step = self._steps[size] or _Step(self._eager, plan, size, pool, self._capture)
        self._remember(size, step)
        return step(ids, plan)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `outrider.models.llama.Forward`."""
        return self._eager.logits(hidden)

    def _remember(self, size: _Size, step: _Step | None) -> None:
        """Stores a step as the latest; drops the least recently used of too many."""
        self._steps[size] = step
        self._steps.move_to_end(size)
        if len(self._steps) > self._most:
            self._steps.popitem(last=False)


def _size(plan: TritonPlan, pool: KvPool, sizes: Sequence[int]) -> _Size | None:
    """The graph size of a step, of the ``sizes`` in rows; None for a step without a graph."""
    room = plan.step.capacity
    if room.rows > sizes[-1]:
        return None
    rows = sizes[bisect_left(sizes, room.rows)]
    folded = _power(room.folded) if room.folded else 0
    return _Size(Capacity(rows, _power(room.items), folded, _power(room.pages)), plan.program, id(pool))


def _power(count: int) -> int:
    return max(1 << (count - 1).bit_length(), _LEAST)
