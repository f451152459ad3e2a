"""Compares kernels with torch at shapes of models, and a row's bits beside other rows. Outputs are poisoned first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from outrider.benches.kernels.cases import Case, cases
from outrider.benches.kernels.pairs import PAIRS, random_weight
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.compilation import compile_all, key
from outrider.kernels.kv_quant import LARGEST_QUANT
from outrider.kernels.launch import INTERPRETED, record_launches
from outrider.kernels.linear import triton as linear
from outrider.kernels.pool import KvPool
from outrider.kernels.race_sample import Draws
from outrider.kernels.race_sample import triton as race_sample
from outrider.kernels.shapes import ModelShape
from outrider.kernels.tree_attention.triton import TritonPlan
from outrider.native.share import cores
from torch import Tensor

from gpu_proof.report import Report
from gpu_proof.sizes import Sizes

_TOLERANCES = {torch.float32: 2e-4, torch.bfloat16: 1e-2, torch.float16: 3e-3}
"""Largest distance to torch's result, over the size of that result, by the shape's dtype."""
_FP8_ROWS = 6e-2
"""The same where rows are rounded to 8-bit floats."""
_POISONED = (2**8, 2**12, 2**16, 2**20, 2**24)
_CONTEXT = 300


def run(report: Report, sizes: Sizes) -> None:
    """Adds a check for each op, shape and step, and for each shape's rows."""
    torch.manual_seed(0)
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for shape in report.in_time(list(sizes.shapes), "shapes"):
        chosen = [case for case in cases([shape], sizes.steps) if case.op in PAIRS]
        if not INTERPRETED:
            with report.attempt(f"compiling, {shape.name}"), torch.inference_mode():
                _compile(chosen, shape, sizes)
        with report.attempt(f"bits of rows, {shape.name}"), torch.inference_mode():
            _rows(report, shape, sizes)
        for case in report.in_time(chosen, f"cases of {shape.name}"):
            with report.attempt(_name(case)), torch.inference_mode():
                error = _compare(report, case, sizes.device)
                of = (case.name, shape.name)
                worst[of] = max(worst.get(of, (-1.0, "")), (error, case.step.name))
    for (op, name), (error, step) in worst.items():
        report.figures("Largest relative error", op=op, shape=name, step=step, error=error)


def _compile(chosen: list[Case], shape: ModelShape, sizes: Sizes) -> None:
    """Compiles a shape's kernels beside one another, as their first launches would one after the other."""
    with record_launches() as launches:
        for case in chosen:
            PAIRS[case.op](case, sizes.device).ours()
        for _, _, part in _row_ops(shape, sizes.beside[-1], sizes.device):
            for rows in (1, *sizes.beside):
                part(list(range(rows)))
    compile_all({key(launch): launch for launch in launches}.values(), threads=cores())


def _compare(report: Report, case: Case, device: torch.device) -> float:
    pair = PAIRS[case.op](case, device)
    _poison(device)
    ours = pair.ours().clone().double()
    theirs = pair.theirs(*pair.inputs).double()
    error = float((ours - theirs).norm() / theirs.norm().clamp(min=1e-30))
    rounds_rows = case.op == "linear" and case.shape.rounds_rows and case.part != "logits"
    most = _FP8_ROWS if rounds_rows else _TOLERANCES[case.shape.dtype]
    report.check(_name(case), ours.shape == theirs.shape and error <= most, f"error {error:.3g}, allowed {most:g}")
    return error


def _name(case: Case) -> str:
    return f"{case.name}, {case.shape.name}, {case.step.name}"


def _poison(device: torch.device) -> None:
    """Fills the memory that the allocator will give out next with NaN, so that unwritten results show."""
    blocks = [torch.full((size,), float("nan"), device=device) for size in _POISONED]
    del blocks


def _rows(report: Report, shape: ModelShape, sizes: Sizes) -> None:
    most = sizes.beside[-1]
    for name, whole, part in _row_ops(shape, most, sizes.device):
        alone = part([0])
        for rows in sizes.beside:
            beside = list(range(rows))
            report.check(
                f"bits of a row among {rows}: {name}, {shape.name}",
                torch.equal(alone, part(beside)[:1]) and torch.equal(part([rows - 1]), whole[rows - 1 : rows]),
            )


class _Part:
    """Runs an op over some of the rows."""

    def __call__(self, rows: list[int]) -> Tensor:
        raise NotImplementedError


class _Matmul(_Part):
    def __init__(self, shape: ModelShape, name: str, rows: int, device: torch.device) -> None:
        self._x = torch.randn(rows, shape.matmuls[name][1], dtype=shape.dtype, device=device)
        self._weight, _ = random_weight(shape, name, device)

    def __call__(self, rows: list[int]) -> Tensor:
        _poison(self._x.device)
        return linear.linear(self._x[rows], self._weight, strict=True)


class _Attention(_Part):
    """Rows of sequences that share the pages of their context."""

    def __init__(self, shape: ModelShape, rows: int, device: torch.device) -> None:
        self._shape, self._device = shape, device
        shared = -(-_CONTEXT // shape.page_size)
        self._pages = [[*range(shared - 1), shared + row] for row in range(rows)]
        self._pool = KvPool(1, shared + rows, shape.page_size, shape.kv_heads, shape.head_dim, shape.kv_dtype, device)
        if shape.kv_dtype in LARGEST_QUANT:
            self._pool.data.copy_(torch.randint(-3, 4, self._pool.data.shape, device=device).float())
        else:
            self._pool.data.normal_()
        if self._pool.scales is not None:
            self._pool.scales.uniform_(0.1, 1.0)
        self._queries = torch.randn(rows, shape.heads, shape.head_dim, dtype=shape.dtype, device=device)

    def __call__(self, rows: list[int]) -> Tensor:
        context = (len(self._pages[0]) * self._shape.page_size) - 1
        sequences = [SequenceRows(1, context, self._pages[row]) for row in rows]
        batch = RaggedBatch.build(sequences, self._shape.page_size, self._device)
        _poison(self._device)
        plan = TritonPlan(batch, self._pool, self._shape.heads, self._shape.dtype, strict=True)
        plan.queries.copy_(self._queries[rows]).mul_(plan.scale)
        return plan.attend(0).clone()


class _Draw(_Part):
    def __init__(self, shape: ModelShape, rows: int, device: torch.device) -> None:
        self._logits = torch.randn(rows, shape.vocabulary, device=device) * 4
        seeds = torch.arange(rows, device=device)
        top_p = torch.full((rows,), 0.9, device=device)
        self._draws = Draws(seeds, seeds + 7, torch.full((rows,), 0.8, device=device), top_p=top_p)

    def __call__(self, rows: list[int]) -> Tensor:
        columns = {name: getattr(self._draws, name)[rows] for name in ("seeds", "positions", "temperatures", "top_p")}
        return race_sample.draw(self._logits[rows], replace(self._draws, **columns))


def _row_ops(shape: ModelShape, rows: int, device: torch.device) -> Iterator[tuple[str, Tensor, _Part]]:
    """Ops by name, with the result of all rows."""
    parts: list[tuple[str, _Part]] = [(f"linear {name}", _Matmul(shape, name, rows, device)) for name in shape.matmuls]
    parts += [("tree_attention", _Attention(shape, rows, device)), ("race_sample", _Draw(shape, rows, device))]
    for name, part in parts:
        yield name, part(list(range(rows))), part
