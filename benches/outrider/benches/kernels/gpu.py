"""Times ops on a GPU beside torch, and as shares of the GPU's measured ceiling."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from outrider.benches.kernels.cases import Case
from outrider.benches.kernels.pairs import PAIRS, Pair, Run

_REPEATS = 15
_COLD_BYTES = 2**28
"""Bytes that a round touches, several times the second-level cache, so that no round finds its data there."""
_MOST_COPIES = 64
_COPIED = 2**31
_MATRIX = 8192

Timer = Callable[[Sequence[Callable[[], object]]], float]
"""Seconds of one of several equal runs."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The GPU's measured limits in this run.

    Attributes:
        bandwidth: of a large copy, bytes read and written a second.
        flops: of large matmuls, a second, by dtype.
    """

    bandwidth: float
    flops: dict[torch.dtype, float]


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured case.

    Attributes:
        case: the measured case.
        seconds: ours, the median.
        torch_seconds: torch's.
        bandwidth: bytes a second that ours moved.
        flops: a second that ours did.
        of_ceiling: the greater of the two over the ceiling.
    """

    case: Case
    seconds: float
    torch_seconds: float
    bandwidth: float
    flops: float
    of_ceiling: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """Measures ops on a device.

    Attributes:
        device: of the tensors.
        timer: times runs; by default on a GPU, in a graph.
        compiled: whether torch's compiler compiles torch's implementations.
        cold: bytes that a round touches (see `_COLD_BYTES`).
        copied: bytes of the large copy.
        matrix: rows and columns of the factors of the large matmul.
    """

    device: torch.device
    timer: Timer
    compiled: bool = True
    cold: int = _COLD_BYTES
    copied: int = _COPIED
    matrix: int = _MATRIX

    def ceiling(self, dtypes: Iterable[torch.dtype]) -> Ceiling:
        """Measures the device's limits."""
        buffers = torch.empty(2, self.copied, dtype=torch.uint8, device=self.device)
        bandwidth = 2 * self.copied / self.timer([partial(buffers[0].copy_, buffers[1])])
        del buffers
        return Ceiling(bandwidth, {dtype: self._matmul_rate(dtype) for dtype in set(dtypes)})

    def measure(self, cases: Iterable[Case], most: Ceiling) -> Iterator[Timing]:
        """Times every case that has a pair."""
        for case in cases:
            if case.op in PAIRS:
                yield self._timing(case, most)
                torch.cuda.empty_cache()

    def _timing(self, case: Case, most: Ceiling) -> Timing:
        copies = min(max(self.cold // max(case.work.moved, 1), 1), _MOST_COPIES)
        pairs: list[Pair] = [PAIRS[case.op](case, self.device) for _ in range(copies)]
        ours = self.timer([pair.ours for pair in pairs])
        theirs = self.timer(self._torch_runs(pairs))
        bandwidth, flops = case.work.moved / ours, case.work.flops / ours
        reached = max(bandwidth / most.bandwidth, flops / most.flops[case.work.factors])
        return Timing(case, ours, theirs, bandwidth, flops, reached)

    def _torch_runs(self, pairs: Sequence[Pair]) -> list[Run]:
        torch.compiler.reset()
        fuses = self.compiled and pairs[0].fuses
        function = torch.compile(pairs[0].theirs, dynamic=False) if fuses else pairs[0].theirs
        return [partial(function, *pair.inputs) for pair in pairs]

    def _matmul_rate(self, dtype: torch.dtype) -> float:
        side = self.matrix
        left, right = (torch.randn(side, side, device=self.device).to(dtype) for _ in range(2))
        if dtype == torch.float8_e4m3fn:
            one = torch.ones((), device=self.device)
            run = partial(torch._scaled_mm, left, right.T, one, one, out_dtype=torch.bfloat16)
        else:
            run = partial(torch.mm, left, right)
        return 2 * side**3 / self.timer([run])


def seconds(runs: Sequence[Callable[[], object]]) -> float:
    """Median seconds of one of ``runs``, in a graph of all of them, so that launches do not count."""
    for run in runs:
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        buffers = [run() for run in runs]
    graph.replay()
    begin, end = (torch.Event(device="cuda", enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(_REPEATS):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / len(runs))
    del buffers
    return statistics.median(times)
