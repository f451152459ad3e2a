"""Rows rounded to eight-bit floats (e4m3)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from outrider.kernels.linear.packed_weight import FP8_COLUMNS
from outrider.kernels.linear.quantize import FP8_LARGEST
from torch import Tensor

_GROUPS = 16
"""Groups of a row that one program rounds to eight bits."""


def rows_to_fp8(x: Tensor, group: int = 0) -> tuple[Tensor, Tensor]:
    """E4m3 quants of contiguous [n, in_features], and float32 [n] scales that make the largest of a row 448.

    The quants are filled with zeros to a multiple of 16, as those of a weight are. With a ``group`` of input features,
    a power of two, scales are [groups, n] and make the largest of each group 448.
    """
    columns = x.shape[1] + -x.shape[1] % FP8_COLUMNS
    quants = torch.empty(len(x), columns, dtype=torch.float8_e4m3fn, device=x.device)
    constants = {"LARGEST": FP8_LARGEST, "K": x.shape[1], "LINE": columns}
    if not group:
        scales = torch.empty(len(x), dtype=torch.float32, device=x.device)
        args: dict[str, Tensor | int] = {"x": x, "quants": quants, "scales": scales}
        launch(_to_fp8, (len(x),), args, constants | {"BLOCK": 2048}, Config(warps=8))
        return quants, scales
    groups = triton.cdiv(x.shape[1], group)
    scales = torch.empty(groups, len(x), dtype=torch.float32, device=x.device)
    args = {"x": x, "quants": quants, "scales": scales, "rows": len(x)}
    grid = len(x), triton.cdiv(groups, _GROUPS)
    launch(_groups_to_fp8, grid, args, constants | {"GROUP": group, "GROUPS": _GROUPS}, Config())
    return quants, scales


@triton.jit
def _to_fp8(x, quants, scales, LARGEST: tl.constexpr, K: tl.constexpr, LINE: tl.constexpr, BLOCK: tl.constexpr):
    """A row divided by its largest magnitude, times e4m3's largest number, with zeros beyond its end."""
    row = tl.program_id(0).to(tl.int64)
    # One program a row, in two passes over it: the first finds the largest magnitude, which the second divides by. The
    # row is read from the cache the second time; it may be too wide for registers.
    most = tl.zeros([BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.abs(tl.load(x + row * K + k, k < K, other=0.0).to(tl.float32)))
    scale = tl.maximum(tl.max(most, 0), 1e-30) / LARGEST
    tl.store(scales + row, scale)
    for start in range(0, LINE, BLOCK):
        k = start + tl.arange(0, BLOCK)
        value = _rounded(tl.load(x + row * K + k, k < K, other=0.0).to(tl.float32) / scale)
        tl.store(quants + row * LINE + k, value.to(quants.dtype.element_ty), k < LINE)


@triton.jit(do_not_specialize=["rows"])
def _groups_to_fp8(
    x, quants, scales, rows,
    LARGEST: tl.constexpr, K: tl.constexpr, LINE: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """`_to_fp8` for each group of a row by itself; the scales of a group of all rows stand side by side."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    k = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    value = tl.load(x + row * K + k, k < K, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), 1), 1e-30) / LARGEST
    tl.store(scales + group * rows + row, scale, group * GROUP < K)
    tl.store(quants + row * LINE + k, _rounded(value / scale[:, None]).to(quants.dtype.element_ty), k < LINE)


@triton.jit
def _rounded(value):
    """Float32 of at most e4m3's largest number, rounded to its four bits or to its smallest step."""
    exponent = (value.to(tl.int32, bitcast=True) >> 23) & 255
    # A sum with a large number keeps four bits.
    tail = ((tl.maximum(exponent, 121) + 20) << 23 | 1 << 22).to(tl.float32, bitcast=True)
    return (value + tail) - tail
