"""Times ops on a GPU beside torch, and as shares of the GPU's measured ceiling."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from outrider.kernels.bench.cases import Case
from outrider.kernels.bench.pairs import PAIRS, Pair, Run

_REPEATS = 15
_COLD_BYTES = 2**28
"""Bytes that a round touches, several times the second-level cache, so that no round finds its data there."""
_MOST_COPIES = 64
_COPIED = 2**31
_MATRIX = 8192


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The GPU's measured limits in this run.

    Attributes:
        bandwidth: of a large copy, bytes read and written a second.
        flops: of large matrix products, a second, by dtype.
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


def ceiling(device: torch.device, dtypes: Iterable[torch.dtype]) -> Ceiling:
    """Measures the GPU's limits."""
    buffers = torch.empty(2, _COPIED, dtype=torch.uint8, device=device)
    bandwidth = 2 * _COPIED / seconds([partial(buffers[0].copy_, buffers[1])])
    del buffers
    return Ceiling(bandwidth, {dtype: _product_rate(device, dtype) for dtype in set(dtypes)})


def measure(cases: Iterable[Case], device: torch.device, most: Ceiling) -> Iterator[Timing]:
    """Times every case that has a pair."""
    for case in cases:
        if case.op in PAIRS:
            yield _timing(case, device, most)
            torch.cuda.empty_cache()


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


def _timing(case: Case, device: torch.device, most: Ceiling) -> Timing:
    copies = min(max(_COLD_BYTES // max(case.work.moved, 1), 1), _MOST_COPIES)
    pairs: list[Pair] = [PAIRS[case.op](case, device) for _ in range(copies)]
    ours = seconds([pair.ours for pair in pairs])
    theirs = seconds(_torch_runs(pairs))
    bandwidth, flops = case.work.moved / ours, case.work.flops / ours
    reached = max(bandwidth / most.bandwidth, flops / most.flops[case.work.factors])
    return Timing(case, ours, theirs, bandwidth, flops, reached)


def _torch_runs(pairs: Sequence[Pair]) -> list[Run]:
    torch.compiler.reset()
    function = torch.compile(pairs[0].theirs, dynamic=False) if pairs[0].fuses else pairs[0].theirs
    return [partial(function, *pair.inputs) for pair in pairs]


def _product_rate(device: torch.device, dtype: torch.dtype) -> float:
    left, right = (torch.randn(_MATRIX, _MATRIX, device=device).to(dtype) for _ in range(2))
    if dtype == torch.float8_e4m3fn:
        one = torch.ones((), device=device)
        run = partial(torch._scaled_mm, left, right.T, one, one, out_dtype=torch.bfloat16)
    else:
        run = partial(torch.mm, left, right)
    return 2 * _MATRIX**3 / seconds([run])
