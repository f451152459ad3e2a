"""geglu as a Triton kernel: one program a block of a row. ``(1 + tanh(z)) / 2`` is the logistic function of ``2 z``."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from torch import Tensor

_BLOCK = 1024
_SLOPE = tl.constexpr(2 * math.sqrt(2 / math.pi))
_CUBIC = tl.constexpr(0.044715)


@triton.jit
def _geglu(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, inside, other=0.0).to(tl.float32)
    slope = _SLOPE * (gate + _CUBIC * gate * gate * gate)
    # exp of minus the magnitude, at most 1: the logistic function without overflow for gates of either sign.
    decay = tl.exp(-tl.abs(slope))
    share = tl.where(slope >= 0, 1.0, decay) / (1 + decay)
    tl.store(out + row * WIDTH + column, gate * share * up, inside)


def geglu(gate_up: Tensor) -> Tensor:
    """See `outrider.kernels.geglu`. The product is taken in float32 and rounded once.

    Raises:
        ValueError: ``gate_up`` is not a contiguous matrix with an even number of columns.
    """
    if gate_up.dim() != 2 or gate_up.shape[1] % 2 or not gate_up.is_contiguous():
        raise ValueError(f"gate_up is {tuple(gate_up.shape)}; it must be a contiguous [n, 2 * width]")
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    grid = (rows, triton.cdiv(width, _BLOCK))
    constants = {"WIDTH": width, "BLOCK": _BLOCK}
    launch(_geglu, grid, {"gate_up": gate_up, "out": out}, constants, Config(warps=4))
    return out
