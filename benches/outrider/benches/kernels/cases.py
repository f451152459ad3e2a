"""The measured cases: ops at the shapes of models and steps, with the bytes they must move and their arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from outrider.kernels.kv_quant import LARGEST_QUANT
from outrider.kernels.shapes import ModelShape

MOVED = 4
"""Rows of a verified tree that move behind the context."""

MOST_DRAWN = 64
"""Most rows of a sequence that draw a token each; of more rows, a piece of a prompt, at most one draws."""


@dataclass(frozen=True, slots=True)
class Step:
    """The rows of one step.

    Attributes:
        name: on command lines and in tables.
        sequences: in the step.
        nodes: rows of each.
        context: tokens in front of each sequence's rows.
    """

    name: str
    sequences: int
    nodes: int
    context: int

    @property
    def rows(self) -> int:
        """Rows of the step."""
        return self.sequences * self.nodes


STEPS = {
    step.name: step
    for step in (
        Step("decode", 1, 1, 4096),
        Step("decode-32", 32, 1, 4096),
        Step("tree-8x16", 8, 16, 4096),
        Step("prompt-512", 1, 512, 4096),
        Step("decode-8k", 1, 1, 8192),
        Step("tree-64-8k", 1, 64, 8192),
        Step("decode-32k", 1, 1, 32768),
        Step("tree-64-32k", 1, 64, 32768),
    )
}
"""One token, a batch of them, a batch of trees, a piece of a prompt; and a token and a large tree in long contexts."""


@dataclass(frozen=True, slots=True)
class Work:
    """The least that an op must do.

    Attributes:
        moved: bytes read from and written to memory, each once.
        flops: of its matmuls, counting a multiply-add as two; 0 without matmuls.
        factors: dtype of the factors.
    """

    moved: int
    flops: int = 0
    factors: torch.dtype = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Case:
    """An op at one step of one model.

    Attributes:
        op: the op.
        part: tells the op's cases apart.
        shape: the model.
        step: the step.
        work: what the op must do.
        strict: whether a row's bits must not depend on the other rows.
    """

    op: str
    part: str
    shape: ModelShape
    step: Step
    work: Work
    strict: bool = True

    @property
    def name(self) -> str:
        """The op, its part and, where the op has two modes, the mode."""
        mode = ("strict" if self.strict else "fast") if self.op in _TWO_MODES else ""
        return " ".join(filter(None, (self.op, self.part, mode)))


Parts = Iterator[tuple[str, Work]]
_OPS: dict[str, Callable[[ModelShape, Step], Parts]] = {}
_TWO_MODES = ("linear", "tree_attention")


def cases(shapes: Iterable[ModelShape], steps: Iterable[Step]) -> Iterator[Case]:
    """All ops of each model at each step; ops with another kernel for `fast` mode in both modes."""
    steps = list(steps)
    for shape in shapes:
        for op, parts in _OPS.items():
            modes = (True, False) if op in _TWO_MODES else (True,)
            for step in steps:
                for part, work in parts(shape, step):
                    yield from (Case(op, part, shape, step, work, strict) for strict in modes)


def weight_bytes(shape: ModelShape, name: str) -> float:
    """Bytes of one element of a matmul's weight; four bits have a scale and a zero point for each 128."""
    if name != "logits" and shape.quants is not None and shape.quants.floats:
        return 1.0 + torch.float32.itemsize / shape.quants.group
    sizes = {None: float(shape.dtype.itemsize), "int8": 1.0, "fp8": 1.0, "int4": 0.5 + 2 * shape.dtype.itemsize / 128}
    return sizes[None if name == "logits" else shape.quantization]


def token_bytes(shape: ModelShape) -> int:
    """Bytes of one token's keys and values in one layer, scales included."""
    scale = 4 if shape.kv_dtype in LARGEST_QUANT else 0
    return 2 * shape.kv_heads * (shape.head_dim * shape.kv_dtype.itemsize + scale)


def _op(parts: Callable[[ModelShape, Step], Parts]) -> Callable[[ModelShape, Step], Parts]:
    """Registers an op under its function's name."""
    _OPS[parts.__name__.removeprefix("_")] = parts
    return parts


@_op
def _rms_norm(shape: ModelShape, step: Step) -> Parts:
    """Two rows read, two written: the residual stream, what is added, the sum, the result."""
    yield "", Work(step.rows * shape.hidden * 4 * shape.dtype.itemsize)


@_op
def _rope_kv_write(shape: ModelShape, step: Step) -> Parts:
    queries = shape.heads * shape.head_dim * shape.dtype.itemsize
    rope = 2 * shape.head_dim * torch.float32.itemsize
    yield "", Work(step.rows * (shape.qkv * shape.dtype.itemsize + rope + queries + token_bytes(shape)))


@_op
def _kv_compact(shape: ModelShape, step: Step) -> Parts:
    if step.nodes > MOVED and step.sequences > 1:
        yield "", Work(step.sequences * MOVED * shape.layers * token_bytes(shape) * 2)


@_op
def _swiglu(shape: ModelShape, step: Step) -> Parts:
    if not shape.stacked:
        yield "", Work(step.rows * 3 * shape.intermediate * shape.dtype.itemsize)


@_op
def _linear(shape: ModelShape, step: Step) -> Parts:
    for name, (outputs, inputs) in shape.matmuls.items():
        rows = step.rows * (outputs + inputs) * shape.dtype.itemsize
        moved = int(outputs * inputs * weight_bytes(shape, name)) + rows
        factors = torch.float8_e4m3fn if shape.rounds_rows and name != "logits" else shape.dtype
        yield name, Work(moved, 2 * step.rows * outputs * inputs, factors)


@_op
def _experts(shape: ModelShape, step: Step) -> Parts:
    """The weights, once, of as many experts as rows choose on average, each expert as likely as the others."""
    if not shape.stacked:
        return
    count, hidden, width = shape.experts, shape.hidden, shape.intermediate
    chosen = count * (1 - (1 - shape.active / count) ** step.rows)
    rows = step.rows * (hidden * shape.dtype.itemsize + (count + hidden) * torch.float32.itemsize)
    weights = int(chosen * 3 * width * hidden * shape.dtype.itemsize)
    yield "", Work(weights + rows, 2 * step.rows * shape.active * 3 * width * hidden, shape.dtype)


@_op
def _tree_attention(shape: ModelShape, step: Step) -> Parts:
    """Keys and values of each sequence once; of its own rows, each sees half."""
    tokens = step.sequences * (step.context + step.nodes)
    rows = step.rows * shape.heads * shape.head_dim * 2 * shape.dtype.itemsize
    visible_tokens = step.rows * (step.context + (step.nodes + 1) / 2)
    yield (
        "",
        Work(tokens * token_bytes(shape) + rows, int(4 * visible_tokens * shape.heads * shape.head_dim), shape.dtype),
    )


@_op
def _race_sample(shape: ModelShape, step: Step) -> Parts:
    """The logits once, of every row."""
    if step.nodes <= MOST_DRAWN:
        yield "", Work(step.rows * shape.vocabulary * shape.dtype.itemsize)
