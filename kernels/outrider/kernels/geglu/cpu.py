"""geglu in two torch operators."""

from __future__ import annotations

import torch
from outrider.kernels.swiglu.cpu import in_pieces
from torch import Tensor

_PARALLEL_FROM = 4096
"""Elements from which torch divides gelu between threads."""


def geglu(gate_up: Tensor) -> Tensor:
    """``gelu(gate) * up`` of [n, 2 * width], the gate first: [n, width]. A row's bits do not depend on the others."""
    return in_pieces(_geglu, gate_up, _PARALLEL_FROM)


def _geglu(gate_up: Tensor, width: int) -> Tensor:
    return torch.nn.functional.gelu(gate_up[:, :width], approximate="tanh").mul_(gate_up[:, width:])
