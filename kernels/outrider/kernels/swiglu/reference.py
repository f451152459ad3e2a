"""The definition of swiglu."""

from __future__ import annotations

import torch
from torch import Tensor


def swiglu(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up`` of [n, 2 * width], the gate first, in float32: [n, width]."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up
