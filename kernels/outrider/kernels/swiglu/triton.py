"""swiglu as a Triton kernel: one program a block of a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from outrider.kernels.launch import Config, launch
from torch import Tensor

_BLOCK = 1024


@triton.jit
def gated(gate, up):
    """``silu(gate) * up`` of float32."""
    # exp of minus the magnitude, at most 1: the logistic function without overflow for gates of either sign.
    decay = tl.exp(-tl.abs(gate))
    share = tl.where(gate >= 0, 1.0, decay) / (1 + decay)
    return gate * share * up


@triton.jit
def _swiglu(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, gated(gate, up), inside)


def swiglu(gate_up: Tensor) -> Tensor:
    """See `outrider.kernels.swiglu`. The product is taken in float32 and rounded once.

    Raises:
        ValueError: ``gate_up`` is not a contiguous matrix with an even number of columns.
    """
    if gate_up.dim() != 2 or gate_up.shape[1] % 2 or not gate_up.is_contiguous():
        raise ValueError(f"gate_up is {tuple(gate_up.shape)}; it must be a contiguous [n, 2 * width]")
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    grid = (rows, triton.cdiv(width, _BLOCK))
    constants = {"WIDTH": width, "BLOCK": _BLOCK}
    launch(_swiglu, grid, {"gate_up": gate_up, "out": out}, constants, Config(warps=4))
    return out
