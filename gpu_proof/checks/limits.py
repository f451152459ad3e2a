"""Times kernels beside torch's own, and as shares of what a large copy and a large matmul reach here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from outrider.benches.kernels import attention, gpu
from outrider.benches.kernels.cases import Case, cases
from outrider.benches.kernels.pairs import PAIRS
from torch import Tensor

from gpu_proof.report import Report
from gpu_proof.sizes import Sizes

_FIRST = ("tree_attention", "linear")


def run(report: Report, sizes: Sizes) -> None:
    """Adds the ceilings and a figure for each case, attention and matmuls first."""
    dry = sizes.device.type == "cpu"
    chosen = [case for case in cases(sizes.timed_shapes, sizes.timed_steps) if case.op in PAIRS]
    chosen.sort(key=lambda case: (sizes.timed_steps.index(case.step), case.op not in _FIRST, case.op))
    chosen = [case for case in chosen if case.op in _FIRST or case.shape is sizes.timed_shapes[0]]
    gauge = gpu.Gauge(sizes.device, _once, False, 1, 2**20, 64) if dry else gpu.Gauge(sizes.device, gpu.seconds)
    with torch.inference_mode():
        most = gauge.ceiling(case.work.factors for case in chosen)
        for dtype, rate in most.flops.items():
            report.figures("Ceilings", of=str(dtype), value=rate / 1e12, unit="TFLOP/s")
        report.figures("Ceilings", of="copy", value=most.bandwidth / 1e12, unit="TB/s")
        for case in report.in_time(chosen, "cases"):
            with report.attempt(f"{case.name}, {case.shape.name}, {case.step.name}"):
                _measure(report, gauge, most, case)
        for case in report.in_time([case for case in chosen if case.op == "tree_attention"], "FlexAttention cases"):
            if case.shape is sizes.timed_shapes[0] and case.strict:
                try:
                    _flex(report, gauge, case, compiled=not dry)
                except Exception as error:  # torch's compiler has no kernel for some masks
                    report.note(f"FlexAttention, {case.step.name}: {type(error).__name__}")


def _measure(report: Report, gauge: gpu.Gauge, most: gpu.Ceiling, case: Case) -> None:
    (timing,) = gauge.measure([case], most)
    report.figures(
        "Kernels (share: of the ceiling that binds; times: torch's time over ours)",
        shape=case.shape.name,
        step=case.step.name,
        op=case.name,
        us=timing.seconds * 1e6,
        share=f"{timing.of_ceiling:.0%}",
        times=timing.torch_seconds / timing.seconds,
    )


def _flex(report: Report, gauge: gpu.Gauge, case: Case, *, compiled: bool) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    plan, pool = attention.plan(case, gauge.device)
    queries, keys, values, visible = attention.dense(case, plan, pool)

    def seen(batch: Tensor, head: Tensor, row: Tensor, token: Tensor) -> Tensor:
        return visible[row, token]

    rows, tokens = visible.shape
    mask = create_block_mask(seen, None, None, rows, tokens, device=str(gauge.device))
    call = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
    seconds = gauge.timer([partial(call, queries, keys, values, block_mask=mask, enable_gqa=True)])
    ours = gauge.timer([lambda: plan.attend(0)])
    report.figures(
        "FlexAttention beside strict attention, µs", step=case.step.name, flex=seconds * 1e6, ours=ours * 1e6
    )


def _once(runs: Sequence[Callable[[], object]]) -> float:
    """Seconds of the first run, for `--dry`."""
    began = time.perf_counter()
    runs[0]()
    return time.perf_counter() - began
