"""The definition of geglu."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def geglu(gate_up: Tensor) -> Tensor:
    """``gate / 2 * (1 + tanh(sqrt(2 / pi) * (gate + 0.044715 * gate^3))) * up``, in float32: [n, width]."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return gate / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * up
