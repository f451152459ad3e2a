"""Times steps of models with random weights, with and without graphs, and compares a row's bits among others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from torch import Tensor

from gpu_proof.model import random_model
from gpu_proof.report import Report
from gpu_proof.sizes import Sizes

_PAGE_SIZE = 16
_FLOATS = "weights in 8-bit floats"
_WARM, _TIMED, _PROFILED = 3, 8, 4


def run(report: Report, sizes: Sizes) -> None:
    """Adds checks of rows, and a figure for each context and number of rows."""
    bench = _Bench(sizes)
    with torch.inference_mode():
        plain = ("graphs", "no graphs") if sizes.device.type == "cuda" else ("graphs",)
        for name in (*plain, _FLOATS):
            began = time.perf_counter()
            model = random_model(sizes, graphs=name != "no graphs", floats=name == _FLOATS)
            pool = model.new_pool(bench.pages, _PAGE_SIZE)
            _fill(pool)
            report.check(f"{name}: loaded, and proven invariant to batching", True)
            report.figures("Loading", mode=name, seconds=time.perf_counter() - began)
            _compare_rows(report, bench, model, pool, name)
            contexts = sizes.contexts[:1] if name == _FLOATS else sizes.contexts
            for context, rows in report.in_time([(c, r) for c in contexts for r in sizes.rows], "steps"):
                with report.attempt(f"{name}: {rows} rows behind {context}"):
                    _measure(report, bench, model, pool, context, rows, name)
            del model, pool
            if sizes.device.type == "cuda":
                torch.cuda.empty_cache()


def _fill(pool: KvPool) -> None:
    for layer in pool.data:
        layer.normal_()


@dataclass(frozen=True, slots=True)
class _Bench:
    """Steps of one row a sequence."""

    sizes: Sizes

    @property
    def pages(self) -> int:
        """Pages of the pool: some that all contexts share, and one for the row of each sequence."""
        return self.sizes.pool_tokens // _PAGE_SIZE + max(self.sizes.rows)

    def step(self, model: LlamaModel, pool: KvPool, context: int, rows: int) -> Callable[[], Tensor]:
        """A step of ``rows`` sequences; where the pool is too small, contexts overlap."""
        shared, own = self.sizes.pool_tokens // _PAGE_SIZE, context // _PAGE_SIZE
        sequences = [
            SequenceRows(1, context, [*((row * own + page) % shared for page in range(own)), shared + row])
            for row in range(rows)
        ]
        ids = torch.arange(rows, device=model.device) % model.config.vocab_size

        def run() -> Tensor:
            batch = RaggedBatch.build(sequences, _PAGE_SIZE, model.device)
            return model.logits(model.forward(ids, batch, pool))

        return run


def _compare_rows(report: Report, bench: _Bench, model: LlamaModel, pool: KvPool, name: str) -> None:
    """Whether the first row's logits have the same bits among any number of rows, in steps with and without a graph."""
    context = bench.sizes.contexts[0]
    alone = [bench.step(model, pool, context, 1)() for _ in range(3)]
    report.check(f"{name}: the same step has the same bits again", all(torch.equal(alone[0], each) for each in alone))
    for rows in bench.sizes.rows[1:]:
        with report.attempt(f"{name}: bits of a row of the model among {rows}"):
            step = bench.step(model, pool, context, rows)
            same = all(torch.equal(alone[0], step()[:1]) for _ in range(3))
            report.check(f"{name}: a row of the model has the same bits among {rows}", same)


def _measure(
    report: Report, bench: _Bench, model: LlamaModel, pool: KvPool, context: int, rows: int, mode: str
) -> None:
    step = bench.step(model, pool, context, rows)
    for _ in range(_WARM):
        step()
    _synchronize(model)
    host, whole = [], []
    for _ in range(_TIMED):
        began = time.perf_counter()
        step()
        host.append(time.perf_counter() - began)
        _synchronize(model)
        whole.append(time.perf_counter() - began)
    report.figures(
        "Steps (ms; the host's part includes planning the step)",
        mode=mode,
        context=context,
        rows=rows,
        step=1e3 * statistics.median(whole),
        host=1e3 * statistics.median(host),
        busy=_busy(model, step),
    )


def _busy(model: LlamaModel, step: Callable[[], Tensor]) -> str:
    """The share of the time in which the GPU runs kernels, by torch's profiler."""
    if model.device.type != "cuda":
        return "no GPU"
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        began = time.perf_counter()
        for _ in range(_PROFILED):
            step()
            _synchronize(model)
        seconds = time.perf_counter() - began
    kernels = [event for event in profiled.events() or () if event.device_type == DeviceType.CUDA]
    return f"{sum(event.time_range.elapsed_us() for event in kernels) / 1e6 / seconds:.0%}"


def _synchronize(model: LlamaModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
