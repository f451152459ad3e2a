"""Every kernel that a model of some shape launches, recorded from the ops themselves on tensors without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.experts import triton as experts
from outrider.kernels.geglu import triton as geglu
from outrider.kernels.kv_compact import triton as kv_compact
from outrider.kernels.launch import Launch, record_launches
from outrider.kernels.linear import Quantization
from outrider.kernels.linear import triton as linear
from outrider.kernels.linear.packed_weight import PackedWeight, pack_weight
from outrider.kernels.linear.quantized_packing import pack_quantized
from outrider.kernels.philox import triton as philox
from outrider.kernels.pool import KvPool
from outrider.kernels.race_sample import triton as race_sample
from outrider.kernels.race_sample.draws import Draws, Penalties
from outrider.kernels.rms_norm import triton as rms_norm
from outrider.kernels.rope_kv_write import triton as rope_kv_write
from outrider.kernels.shapes import ModelShape
from outrider.kernels.swiglu import triton as swiglu
from outrider.kernels.tree_attention import triton as tree_attention
from outrider.native.quantized import UNIT_GROUP, QuantFormat, Quants, QuantsInMemory
from torch import Tensor

_ROWS = 8
_MANY_ROWS = 200
"""A chunk of a prompt, which takes other tiles and shapes than a few rows."""
_PAGES = 256
_STRICT = {True: ", strict", False: ""}

Variants = Iterator[tuple[str, Callable[[], object]]]
"""Calls of an op, each with a name that tells it from the others."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch of an op.

    Attributes:
        op: the public op.
        variant: a name that tells it from the op's other launches.
        launch: the launch.
    """

    op: str
    variant: str
    launch: Launch


_OPS: dict[str, Callable[[ModelShape], Variants]] = {}


def entries(shape: ModelShape) -> Iterator[Entry]:
    """The launches of a model of ``shape``, op by op."""
    for op, variants in _OPS.items():
        for variant, call in variants(shape):
            with record_launches() as launches:
                call()
            yield from (Entry(op, variant, launch) for launch in launches)


def _op(variants: Callable[[ModelShape], Variants]) -> Callable[[ModelShape], Variants]:
    """Registers an op under its function's name."""
    _OPS[variants.__name__.removeprefix("_")] = variants
    return variants


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _pool(shape: ModelShape) -> KvPool:
    return KvPool(2, _PAGES, shape.page_size, shape.kv_heads, shape.head_dim, shape.kv_dtype, "meta")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@_op
def _rms_norm(shape: ModelShape) -> Variants:
    weight, eps = _empty(shape.hidden), _empty()
    add = _empty(_ROWS, shape.hidden, dtype=shape.dtype)
    x = _empty(_ROWS, shape.hidden)
    call = partial(rms_norm.rms_norm, x, weight, eps)
    yield f"{shape.hidden} float32 to {_name(shape.dtype)}", partial(call, dtype=shape.dtype)
    if shape.norms_after:
        result = _empty(_ROWS, shape.hidden, dtype=shape.dtype)
        after = partial(rms_norm.rms_norm, result, weight, eps, dtype=torch.float32)
        yield f"{shape.hidden} {_name(shape.dtype)} to float32", after
        yield f"{shape.hidden} float32 + float32 to {_name(shape.dtype)}", partial(call, add=x, dtype=shape.dtype)
        yield f"{shape.hidden} float32 + float32 to float32", partial(call, add=x, dtype=torch.float32)
        return
    for dtype in (shape.dtype, torch.float32):
        added = f"{shape.hidden} float32 + {_name(shape.dtype)} to {_name(dtype)}"
        yield added, partial(call, add=add, dtype=dtype)


@_op
def _rope_kv_write(shape: ModelShape) -> Variants:
    qkv, rope = _empty(_ROWS, shape.qkv, dtype=shape.dtype), _empty(_ROWS, 1, shape.head_dim // 2, dtype=torch.cfloat)
    queries = _empty(_ROWS, shape.heads, shape.head_dim, dtype=shape.dtype)
    vectors = _empty(shape.heads + shape.kv_heads, shape.head_dim)
    norm, balance = vectors if shape.head_norm else None, vectors if shape.kv_dtype == torch.int8 else None
    slots, eps = _empty(_ROWS, dtype=torch.int64), _empty()
    variant = f"{shape.heads}/{shape.kv_heads} x {shape.head_dim} to {_name(shape.kv_dtype)}"
    args = (qkv, rope, rope, queries, _pool(shape), 0, slots)
    yield (
        variant + (", normed" if shape.head_norm else ""),
        partial(rope_kv_write.rope_kv_write, *args, head_norm=norm, eps=eps, balance=balance),
    )


@_op
def _kv_compact(shape: ModelShape) -> Variants:
    offsets, slots = _empty(3, dtype=torch.int32), _empty(_ROWS, dtype=torch.int64)
    variant = f"{shape.kv_heads} x {shape.head_dim} {_name(shape.kv_dtype)}"
    yield variant, partial(kv_compact.kv_compact_batch, _pool(shape), offsets, slots, slots)


@_op
def _geglu(shape: ModelShape) -> Variants:
    gate_up = _empty(_ROWS, 2 * shape.intermediate, dtype=shape.dtype)
    if shape.gelu:
        yield f"{shape.intermediate} {_name(shape.dtype)}", partial(geglu.geglu, gate_up)


@_op
def _swiglu(shape: ModelShape) -> Variants:
    if shape.gelu or shape.stacked:
        return
    gate_up = _empty(_ROWS, 2 * shape.intermediate, dtype=shape.dtype)
    yield f"{shape.intermediate} {_name(shape.dtype)}", partial(swiglu.swiglu, gate_up)


@_op
def _linear(shape: ModelShape) -> Variants:
    for name, (outputs, inputs) in shape.matmuls.items():
        quantization = None if name == "logits" else shape.quantization
        quants = None if name == "logits" else shape.quants
        weight = _weight(outputs, inputs, shape.dtype, quantization, quants)
        form = _name(shape.dtype) if quants is None else _form(quants)
        for rows, strict in ((_ROWS, True), (64, True), (_MANY_ROWS, True), (_ROWS, False)):
            variant = f"{name} {outputs} x {inputs} {quantization or form}, {rows} rows{_STRICT[strict]}"
            x = _empty(rows, inputs, dtype=shape.dtype)
            yield variant, partial(linear.linear, x, weight, strict=strict)
    if shape.experts:
        for rows, strict in ((_ROWS, True), (_ROWS, False)):
            router = pack_weight(_empty(shape.experts, shape.hidden), None)
            variant = f"router {shape.experts} x {shape.hidden} float32, {rows} rows{_STRICT[strict]}"
            yield variant, partial(linear.linear, _empty(rows, shape.hidden), router, strict=strict)


@_op
def _experts(shape: ModelShape) -> Variants:
    if not shape.stacked:
        return
    count, hidden, width = shape.experts, shape.hidden, shape.intermediate
    gate_up, down = (_empty(count, *each, dtype=shape.dtype) for each in ((2 * width, hidden), (hidden, width)))
    layer = experts.StackedExperts(gate_up, down, shape.active, normed=True)
    for rows in (_ROWS, _MANY_ROWS * count):
        variant = f"{shape.active} of {count} x {width}, {rows} rows"
        yield variant, partial(layer, _empty(rows, hidden, dtype=shape.dtype), _empty(rows, count))


def _weight(
    outputs: int, inputs: int, dtype: torch.dtype, quantization: Quantization | None, form: QuantFormat | None
) -> PackedWeight:
    if form is None:
        return pack_weight(_empty(outputs, inputs, dtype=dtype), quantization)
    groups, units = _empty(outputs, -(-inputs // form.group)), _empty(outputs, inputs // UNIT_GROUP)
    quants = Quants(_empty(outputs, inputs, dtype=torch.uint8), groups, groups, units, units)
    return pack_quantized(QuantsInMemory(form, quants), dtype, torch.device("meta"))


def _form(form: QuantFormat) -> str:
    if form.floats:
        return f"e4m3 in groups of {form.group}{', rows too' if form.rounds_rows else ''}"
    return f"{form.bits} bits in groups of {form.group}"


@_op
def _tree_attention(shape: ModelShape) -> Variants:
    pool = _pool(shape)
    for strict, rows in ((True, 1), (False, 1), (True, _MANY_ROWS)):
        pages = range(rows // shape.page_size + 1)
        batch = RaggedBatch.build([SequenceRows(rows, 1, pages)], shape.page_size, "meta")
        plan = tree_attention.TritonPlan(batch, pool, shape.heads, shape.dtype, strict=strict)
        heads = f"{shape.heads}/{shape.kv_heads} x {shape.head_dim} of {_name(shape.kv_dtype)}"
        yield f"{heads}, {rows} rows{_STRICT[strict]}", partial(plan.attend, 0)


@_op
def _race_sample(shape: ModelShape) -> Variants:
    logits, ints = _empty(_ROWS, shape.vocabulary), partial(_empty, dtype=torch.int32)
    longs = _empty(_ROWS, dtype=torch.int64)
    plain = Draws(longs, longs, _empty(_ROWS))
    allowed = ints(_ROWS, -(-shape.vocabulary // 32))
    truncated = replace(plain, top_k=ints(_ROWS), top_p=_empty(_ROWS), min_p=_empty(_ROWS))
    penalties = Penalties(ints(_ROWS + 1), ints(_ROWS), _empty(_ROWS), _empty(_ROWS))
    draws = {
        "plain": plain,
        "masked": replace(plain, allowed=allowed),
        "truncated": truncated,
        "penalised": replace(plain, penalties=penalties),
        "all": replace(truncated, penalties=penalties, allowed=allowed),
    }
    for variant, parameters in draws.items():
        yield variant, partial(race_sample.draw, logits, parameters)


@_op
def _philox(shape: ModelShape) -> Variants:
    longs = _empty(_ROWS, dtype=torch.int64)
    yield "log-exponentials", partial(philox.log_exponentials, longs, longs, shape.vocabulary)
