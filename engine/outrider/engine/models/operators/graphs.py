"""Runs steps as CUDA graphs, captured once for each size.

A step is hundreds of launches, each of which takes the CPU longer than the GPU where rows are few. A graph needs the
same tensors each time, so a step is copied into the tensors of the next larger size. Unused rows and items do nothing,
and no kernel lets a row's bits depend on the number of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from outrider.engine.logs import get_logger
from outrider.engine.models.operators.eager import EagerForward
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.kernels.tree_attention.tables import Capacity
from outrider.kernels.tree_attention.triton import TritonPlan
from torch import Tensor

_log = get_logger("models")

Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Captures a step: returns a function that runs it again, and the tensor of its result."""

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640)
_LEAST = 16
_PARTIALS = 8192
"""Enough for 128 rows in the longest contexts: 134 MB of a graph's own with 32 heads of 128."""


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
    layers: tuple[int, ...]


class _Step:
    """A captured step of one size, with its tensors."""

    def __init__(self, eager: EagerForward, plan: TritonPlan, size: _Size, pool: KvPool, capture: Capture) -> None:
        device, rows = pool.data.device, size.room.rows
        self._ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self._plan, self._pool = plan.with_capacity(size.room), pool
        tables = self._plan.work.tables
        tables.slots.fill_(-1)
        shape = rows, len(size.layers), eager.hidden_size
        self._states = torch.empty(shape, device=device) if size.layers else None
        rest = tables.positions, tables.slots, self._plan, pool, size.layers, self._states
        self._run, self._out = capture(lambda: eager.run(self._ids, *rest))

    def __call__(self, ids: Tensor, plan: TritonPlan, states: Tensor | None) -> Tensor:
        self._plan.load(plan.step)
        self._ids[: len(ids)].copy_(ids)
        self._run()
        if states is not None and self._states is not None:
            states.copy_(self._states[: len(ids)])
        return self._out[: len(ids)].clone()


class GraphForward:
    """Runs steps as graphs, from the second step of a size on, and other steps eagerly.

    A capture that runs out of memory is the last one: steps of its size and of new sizes run eagerly.

    Args:
        eager: runs a step as it comes.
        capture: makes a graph of a step.
        rows: sizes of graphs, ascending; steps of more rows run as they come.
        partials: most partial results of attention that a graph has memory for. Steps that need more run as they come:
            their launches take less time than their attention.
        most: graphs that are kept.
    """

    def __init__(
        self,
        eager: EagerForward,
        capture: Capture,
        rows: Sequence[int] = ROWS,
        partials: int = _PARTIALS,
        most: int = 96,
    ) -> None:
        self._eager, self._capture, self._most = eager, capture, most
        self._rows, self._partials = rows, partials
        self.kv_dtypes = eager.kv_dtypes
        self._steps: OrderedDict[_Size, _Step | None] = OrderedDict()
        self._full = False

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        batch: RaggedBatch,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        plan = self._eager.plan(batch, pool)
        if isinstance(plan, TritonPlan) and (size := self._size(plan, pool, layers)) is not None:
            step = self._steps.get(size) or (self._captured(plan, size, pool) if size in self._steps else None)
            self._remember(size, step)
            if step is not None:
                return step(ids, plan, states)
        return self._eager.run(ids, batch.positions, batch.slots, plan, pool, layers, states)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        return self._eager.logits(hidden)

    def embed(self, ids: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        return self._eager.embed(ids)

    def _captured(self, plan: TritonPlan, size: _Size, pool: KvPool) -> _Step | None:
        """A graph of the step's size; None once there is no memory for one more."""
        if self._full:
            return None
        try:
            return _Step(self._eager, plan, size, pool, self._capture)
        except torch.OutOfMemoryError as error:
            self._full = True
            graphs = sum(step is not None for step in self._steps.values())
            _log.warning(
                "no memory for a further CUDA graph: steps of other sizes run slower; lower memory_fraction",
                graphs=graphs,
                error=str(error),
            )
            return None

    def _size(self, plan: TritonPlan, pool: KvPool, layers: Sequence[int]) -> _Size | None:
        """The size of a step's graph; None for a step without one."""
        least = plan.step.capacity
        if least.rows > self._rows[-1]:
            return None
        rows = self._rows[bisect_left(self._rows, least.rows)]
        folded = _power(least.folded) if least.folded else 0
        capacity = Capacity(rows, _power(least.items), folded, _power(least.pages), _power(least.partials))
        return None if capacity.partials > self._partials else _Size(capacity, plan.program, id(pool), tuple(layers))

    def _remember(self, size: _Size, step: _Step | None) -> None:
        """Stores a step as the latest; drops the least recently used of too many."""
        self._steps[size] = step
        self._steps.move_to_end(size)
        if len(self._steps) > self._most:
            self._steps.popitem(last=False)


def _power(count: int) -> int:
    return max(1 << (count - 1).bit_length(), _LEAST)
