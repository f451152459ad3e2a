"""linear as Triton kernels: the weight is the left operand, unpacked in the registers that the tensor cores read.

``out.T = weight @ x.T``, so that the many output features fill the long side of the matrix instructions and the rows
the short one. Few rows, where their number may show in the bits, are one launch, in whose programs the warps share
the input features (SLICES). In all other matmuls an output's sum has one order, whatever the tile is. Where the
output features alone make too few programs for few rows, the input features are divided into shares, whose sums are
added in order: by a second launch, or, where rows make enough programs, by the program that computes all of them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import INTERPRETED, Config, dot_dtype, launch
from outrider.kernels.linear.eight_bit_rows.triton import rows_to_fp8
from outrider.kernels.linear.packed_weight import MAGIC, PackedWeight
from outrider.kernels.linear.tiling import Tile, tile_of
from outrider.kernels.linear.unpacking.triton import (
    UNPACK,
    UNPACK_FLOATS,
    group_index,
    numbers_at,
    of_group,
    offsets_of,
    per_line,
)
from outrider.native.quantized import UNIT_GROUP
from torch import Tensor

_MOST_ROWS = 1024
"""Most rows of one launch, so that partial sums stay small."""

KINDS = {
    torch.float32: tl.float32,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float8_e4m3fn: tl.float8e4nv,
}
"""The language's names of the dtypes that matmuls multiply."""
_FP8_SUM = 128
"""Terms of eight-bit floats that Hopper adds in fewer than 24 bits before it adds them to a sum in float32."""


@triton.jit
def _scaled_and_biased(
    total, scales, row_scales, bias, row, column, inside, SCALED: tl.constexpr, BIASED: tl.constexpr
):
    """Sums times the scales of columns and rows, and the bias; all have the shape of the sums or widen to it."""
    if SCALED >= 1:
        total *= tl.load(scales + column, inside, other=0.0)
    if SCALED == 2:
        total *= tl.load(row_scales + row)
    if BIASED:
        total += tl.load(bias + column, inside, other=0.0).to(tl.float32)
    return total


@triton.jit
def share_of_sums(
    x, words, scales, zeros, minima, scale_units, minimum_units, row_scales, rows, outer, row, column, split,
    K: tl.constexpr, PARTS: tl.constexpr, GROUP: tl.constexpr, ZERO: tl.constexpr, MINIMA: tl.constexpr,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SLICES: tl.constexpr, WORDS: tl.constexpr,
    SPLITS: tl.constexpr, ASM: tl.constexpr, MAGIC: tl.constexpr, FLOATS: tl.constexpr, KIND: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """The sums of a tile over one split's share of the input features, [COLUMNS, ROWS]."""
    # STEP: input features that one block of words holds. BLOCKS: blocks of an output feature. LINE: words between two
    # output features. TOGETHER: parts of a block that share a group's scale, and so one sum before it is scaled.
    # SHARE: blocks of one split, a whole number of slices.
    STEP: tl.constexpr = WORDS * PARTS
    BLOCKS: tl.constexpr = (K + STEP - 1) // STEP
    LINE: tl.constexpr = K if PARTS == 1 else BLOCKS * WORDS
    TOGETHER: tl.constexpr = 1 if GROUP == 0 else PARTS if GROUP % STEP == 0 else 1 if STEP % GROUP else GROUP // WORDS
    SHARE: tl.constexpr = ((BLOCKS + SLICES - 1) // SLICES + SPLITS - 1) // SPLITS * SLICES
    # Lanes beyond the last output feature read that one again, so that the weight's loads need no mask; the store
    # drops them.
    line = tl.minimum(column, outer - 1)
    place = tl.arange(0, WORDS)
    total = tl.zeros([COLUMNS, ROWS] if SLICES == 1 else [SLICES, COLUMNS, ROWS], tl.float32)
    first = split * SHARE
    for block in range(first, tl.minimum(first + SHARE, BLOCKS), SLICES):
        # With SLICES (few rows) a block is three-dimensional: each warp multiplies another step of the input features,
        # and the sums of all slices are added once, behind the loop. The tile is too small to be shared otherwise.
        step = block if SLICES == 1 else block + tl.arange(0, SLICES)
        at = offsets_of(step * WORDS, line * LINE, place, SLICES)
        # Three loads, since a mask costs registers: none where the features fill all blocks, features for plain
        # weights, and whole blocks for packed words, whose padding is zero already.
        if K % (STEP * SLICES) == 0:
            word = tl.load(words + at)
        elif PARTS == 1:
            word = tl.load(words + at, offsets_of(step * WORDS, line * 0, place, SLICES) < K, other=0.0)
        else:
            word = tl.load(words + at, offsets_of(step, line * 0, place * 0, SLICES) < BLOCKS, other=0)
        used = step < BLOCKS
        # One word holds PARTS quants, whose features lie WORDS apart: part i of all words is one [COLUMNS, WORDS]
        # operand, with neighbouring features in neighbouring lanes, as the tensor cores want it.
        for i in tl.static_range(PARTS):
            # One scale for an output feature: it multiplies the total at the end. Scales of groups multiply the sum of
            # each group, which therefore begins anew; a zero point or a minimum is read once a group.
            if GROUP == 0:
                zero = word
                part = total
            elif i % TOGETHER == 0:
                part = tl.zeros_like(total)
                sums = tl.zeros([1, ROWS] if SLICES == 1 else [SLICES, 1, ROWS], tl.float32)
                if PARTS <= 2:
                    zero = word
                elif ZERO is None:
                    zero = per_line(zeros, group_index(step, i, WORDS, PARTS, GROUP) * outer, line, used, SLICES)
                else:
                    zero = tl.full([1, 1] if SLICES == 1 else [1, 1, 1], ZERO, KIND)
            inside = offsets_of(step * 0, row, place * 0, SLICES) < rows
            if K % (STEP * SLICES) != 0:
                inside &= offsets_of(step * STEP + i * WORDS, row * 0, place, SLICES) < K
            at = offsets_of(step * STEP + i * WORDS, row * K, place, SLICES)
            inputs = tl.load(x + at, inside, other=0.0).to(KIND)
            inputs = inputs.T if SLICES == 1 else tl.permute(inputs, (0, 2, 1))
            quant = numbers_at(word, zero, inputs, i, PARTS, ASM, MAGIC, FLOATS)
            part = tl.dot(quant, inputs, part, input_precision="ieee", max_num_imprecise_acc=EXACT)
            if MINIMA:
                # scale * sum(quant * x) - minimum * sum(x): the minimum needs the sum of the inputs alone, in the same
                # order.
                sums += tl.sum(inputs.to(tl.float32), 0 if SLICES == 1 else 1, keep_dims=True)
            if GROUP == 0:
                total = part
            elif i % TOGETHER == TOGETHER - 1:
                scale = of_group(
                    scales, scale_units, step, outer, line, used, i, WORDS, PARTS, GROUP, UNIT, SLICES
                )  # fmt: skip
                # Rows in eight bits have a scale a group, too.
                if PARTS == 1:
                    group = group_index(step, i, WORDS, PARTS, GROUP)
                    scale = scale * tl.load(row_scales + group * rows + row, row < rows, other=0.0)[None, :]
                total = total + part * scale
                if MINIMA:
                    minimum = of_group(
                        minima, minimum_units, step, outer, line, used, i, WORDS, PARTS, GROUP, UNIT, SLICES
                    )  # fmt: skip
                    total -= sums * minimum
    if SLICES > 1:
        total = tl.sum(total, 0)
    return total


@triton.jit(do_not_specialize=["rows", "outer"])
def _matmul(
    x, words, scales, zeros, minima, scale_units, minimum_units, row_scales, bias, out, rows, outer,
    K: tl.constexpr, PARTS: tl.constexpr, GROUP: tl.constexpr, ZERO: tl.constexpr, MINIMA: tl.constexpr,
    UNIT: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, SLICES: tl.constexpr, WORDS: tl.constexpr, SPLITS: tl.constexpr, JOINED: tl.constexpr,
    ASM: tl.constexpr, MAGIC: tl.constexpr, FLOATS: tl.constexpr, KIND: tl.constexpr, EXACT: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """A tile of ``weight @ x.T``; one split's share of its sums where other programs have the other splits."""
    # Tells the compiler that 16 divides the width, which it may not assume of an argument that it does not specialize
    # on: rows of the result are then stored in whole vectors.
    outer = tl.cast(outer, tl.int64) // ALIGNED * ALIGNED
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = share_of_sums(
        x, words, scales, zeros, minima, scale_units, minimum_units, row_scales, rows, outer, row, column,
        tl.program_id(2), K, PARTS, GROUP, ZERO, MINIMA, UNIT, ROWS, COLUMNS, SLICES, WORDS, SPLITS, ASM, MAGIC, FLOATS,
        KIND, EXACT,
    )  # fmt: skip
    # Many rows make enough programs: one computes all splits of its tile, one after the other, and adds them in the
    # order in which `_add_shares` would. So a row has the same bits with a second launch and without one.
    if JOINED:
        for split in range(1, SPLITS):
            total += share_of_sums(
                x, words, scales, zeros, minima, scale_units, minimum_units, row_scales, rows, outer, row, column,
                split, K, PARTS, GROUP, ZERO, MINIMA, UNIT, ROWS, COLUMNS, SLICES, WORDS, SPLITS, ASM, MAGIC, FLOATS,
                KIND, EXACT,
            )  # fmt: skip
    inside = (row < rows)[None, :] & (column < outer)[:, None]
    if SPLITS == 1 or JOINED:
        within = (column < outer)[:, None]
        r, c = tl.minimum(row, rows - 1)[None, :], column[:, None]
        total = _scaled_and_biased(total, scales, row_scales, bias, r, c, within, SCALED, BIASED)
    at = (tl.program_id(2).to(tl.int64) * rows + row)[None, :] * outer + column[:, None]
    tl.store(out + at, total.to(out.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["rows", "outer"])
def _add_shares(
    shares, scales, row_scales, bias, out, rows, outer,
    SCALED: tl.constexpr, BIASED: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the splits' shares, first to last."""
    # A program holds BLOCK output features of one row. The loop is unrolled: the order of the sum is the order of the
    # text.
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < outer
    total = tl.load(shares + row * outer + column, inside, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(shares + (split * rows.to(tl.int64) + row) * outer + column, inside, other=0.0)
    total = _scaled_and_biased(total, scales, row_scales, bias, row, column, inside, SCALED, BIASED)
    tl.store(out + row * outer + column, total.to(out.dtype.element_ty), inside)


def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None = None, *, strict: bool = True) -> Tensor:
    """``x @ weight.T + bias``.

    Args:
        x: [n, in_features], contiguous, in the weight's dtype.
        weight: packed, on the device of ``x``.
        bias: [out_features].
        strict: whether a row's bits must not depend on the number of rows. Without it, few rows are quicker, and more
            than 64 of an unquantized weight are torch's own matmul.

    Returns:
        [n, out_features].

    Raises:
        ValueError: a shape, a dtype, a device or the GPU does not fit the weight.
    """
    _check(x, weight, bias)
    if not strict and len(x) > 64 and weight.scales is None:
        return torch.nn.functional.linear(x, weight.words, bias)
    out = torch.empty(len(x), weight.out_features, dtype=x.dtype, device=x.device)
    tile = tile_of(weight, len(x), strict=strict)
    for start in range(0, len(x), _MOST_ROWS):
        _tiles(x[start : start + _MOST_ROWS], weight, bias, out[start : start + _MOST_ROWS], tile)
    return out


def _tiles(x: Tensor, weight: PackedWeight, bias: Tensor | None, out: Tensor, tile: Tile) -> None:
    rows, outer = out.shape
    inputs, row_scales = rows_to_fp8(x, weight.group) if weight.fp8 else (x, x)
    joined = tile.splits == 1 or tile.joined
    shares = out if joined else torch.empty(tile.splits, rows, outer, dtype=torch.float32, device=x.device)
    finish: dict[str, Tensor | int] = {
        "scales": out if weight.scales is None else weight.scales,
        "row_scales": row_scales,
        "bias": out if bias is None else bias,
        "rows": rows,
        "outer": outer,
    }
    of_groups = {name: getattr(weight, name) for name in ("zeros", "minima", "scale_units", "minimum_units")}
    tensors = {name: value if isinstance(value, Tensor) else out for name, value in of_groups.items()}
    args: dict[str, Tensor | int] = {"x": inputs, "words": weight.words, "out": shares, **tensors, **finish}
    grid = (triton.cdiv(rows, tile.rows), triton.cdiv(outer, tile.columns), 1 if joined else tile.splits)
    scaled = 0 if weight.scales is None or weight.group else 2 if weight.fp8 else 1
    constants = {"SCALED": scaled, "BIASED": bias is not None, "SPLITS": tile.splits}
    launch(_matmul, grid, args, constants | _layout(weight, tile), tile.config)
    if not joined:
        blocks = (rows, triton.cdiv(outer, 1024))
        launch(_add_shares, blocks, {"shares": shares, "out": out, **finish}, constants | {"BLOCK": 1024}, Config())


def _layout(weight: PackedWeight, tile: Tile) -> dict[str, Any]:
    return {
        "K": weight.words.shape[1] if weight.parts == 1 else weight.in_features,
        "PARTS": weight.parts,
        "GROUP": weight.group,
        "ZERO": None if isinstance(weight.zeros, Tensor) else weight.zeros,
        "MINIMA": weight.minima is not None,
        "UNIT": 0 if weight.scale_units is None else UNIT_GROUP,
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "SLICES": tile.slices,
        "WORDS": tile.words,
        "JOINED": tile.joined,
        "ASM": None if INTERPRETED else _unpack(weight),
        "MAGIC": MAGIC[weight.dtype],
        "FLOATS": weight.floats,
        "KIND": KINDS[dot_dtype(weight.words.dtype if weight.fp8 else weight.dtype)],
        "ALIGNED": 16 if weight.out_features % 16 == 0 else 1,
        "EXACT": _FP8_SUM if weight.fp8 else None,
    }


def _unpack(weight: PackedWeight) -> tuple[str, ...] | None:
    if weight.floats and weight.parts > 1:
        return UNPACK_FLOATS.get(weight.dtype)
    return UNPACK.get((weight.parts, weight.dtype))


def _check(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> None:
    if x.dim() != 2 or x.shape[1] != weight.in_features or not x.is_contiguous():
        raise ValueError(f"x is {tuple(x.shape)}; it must be a contiguous [n, {weight.in_features}]")
    if x.dtype != weight.dtype:
        raise ValueError(f"x is {x.dtype}; it must be {weight.dtype}, as the weight was")
    if x.device != weight.words.device:
        raise ValueError(f"x is on {x.device}; it must be on {weight.words.device}, where the weight is")
    if bias is not None and (bias.shape != (weight.out_features,) or bias.device != x.device):
        raise ValueError(f"bias is {tuple(bias.shape)} on {bias.device}; it must be [{weight.out_features}] beside x")
