"""rms_norm as a Triton kernel: one program a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from torch import Tensor

_WIDEST = 16384


@triton.jit(do_not_specialize_on_alignment=["eps"])
def _rms_norm(
    x,
    weight,
    eps,
    add,
    out,
    STRIDE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ADDED: tl.constexpr,
):
    # One program: a head of a row, or a whole row, in one block. The row is read once; the sum of squares and the
    # result use the same registers.
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    place = (row * HEADS + head) * WIDTH + column
    place_in_x = x + row * STRIDE + head * WIDTH + column
    value = tl.load(place_in_x, inside, other=0.0)
    if ADDED:
        # The residual is rounded to its dtype before the norm, as if it had been written and read by two kernels.
        value = (value.to(tl.float32) + tl.load(add + place, inside, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(place_in_x, value, inside)
    wide = value.to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide) / WIDTH + tl.load(eps))
    if WEIGHTED:
        normed *= tl.load(weight + head * WIDTH + column, inside, other=0.0).to(tl.float32)
    tl.store(out + place, normed, inside)


def rms_norm(
    x: Tensor, weight: Tensor | None, eps: Tensor, *, add: Tensor | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """See `outrider.kernels.rms_norm`. The arithmetic is in float32, and the result is rounded once.

    Raises:
        ValueError: ``x`` is too wide, its rows are not contiguous, or the shape of ``weight``, ``eps`` or ``add`` does
            not fit.
    """
    heads, width = _heads(x, weight), x.shape[-1]
    rows = x.numel() // (heads * width)
    stride = _stride(x, rows, heads * width, 2 if weight is None else 1 + weight.dim())
    if eps.dim() or eps.dtype != torch.float32 or eps.device != x.device:
        raise ValueError(f"eps is {eps.dtype} {tuple(eps.shape)} on {eps.device}; it must be a float32 scalar by x")
    if add is not None and (add.shape != x.shape or not add.is_contiguous()):
        raise ValueError(f"add is {tuple(add.shape)}; it must be contiguous and of x's shape {tuple(x.shape)}")
    block = triton.next_power_of_2(width)
    out = torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
    tensors = {
        "x": x,
        "weight": x if weight is None else weight,
        "eps": eps,
        "add": x if add is None else add,
        "out": out,
    }
    constants = {
        "STRIDE": stride,
        "HEADS": heads,
        "WIDTH": width,
        "BLOCK": block,
        "WEIGHTED": weight is not None,
        "ADDED": add is not None,
    }
    launch(_rms_norm, (rows, heads), tensors, constants, Config(warps=min(max(block // 1024, 1), 16)))
    return out


def _heads(x: Tensor, weight: Tensor | None) -> int:
    """Rows of x that have a weight of their own, beside one another."""
    width = x.shape[-1] if x.dim() else 0
    if not 1 <= width <= _WIDEST:
        raise ValueError(f"x is {tuple(x.shape)}; its last axis must be of 1 to {_WIDEST}")
    if weight is None or weight.shape == x.shape[-1:]:
        return 1
    if weight.shape != x.shape[-2:] or not weight.is_contiguous():
        raise ValueError(
            f"weight is {tuple(weight.shape)}; for x {tuple(x.shape)} it must be [width] or [heads, width]"
        )
    return weight.shape[0]


def _stride(x: Tensor, rows: int, width: int, axis: int) -> int:
    """Elements from one row of [rows, width] to the next, rows being the ``axis``-th axis of x from the end."""
    try:
        flat = x.view(rows, width)
    except RuntimeError:
        flat = None
    if flat is None or (width > 1 and flat.stride(1) != 1):
        raise ValueError(f"x has strides {x.stride()}; its rows must be contiguous and evenly spaced")
    return x.stride(-axis) if x.dim() >= axis else width
