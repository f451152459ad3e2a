"""swiglu in two torch operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PARALLEL_FROM = 32768
"""Elements from which torch divides most elementwise operators between threads."""


def swiglu(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` of [n, 2 * width], the gate first: [n, width]. A row's bits do not depend on the others."""
    return in_pieces(_swiglu, gate_up)


def in_pieces(gated: Callable[[Tensor, int], Tensor], gate_up: Tensor, parallel_from: int = PARALLEL_FROM) -> Tensor:
    """``gated`` of rows [n, 2 * width] and their width: [n, width].

    torch computes the end of a thread's share with another exponential than the rest, so a step that torch would
    divide between threads is computed in pieces that it does not divide.
    """
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    most = max(1, (parallel_from - 1) // width)
    if rows <= most or torch.get_num_threads() == 1:
        return gated(gate_up, width)
    return torch.cat([gated(piece, width) for piece in torch.split(gate_up, most)])


def _swiglu(gate_up: Tensor, width: int) -> Tensor:
    return torch.nn.functional.silu(gate_up[:, :width]).mul_(gate_up[:, width:])
