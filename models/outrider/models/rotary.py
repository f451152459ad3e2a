"""Rotary positions: frequencies of a model, the table of rotations, and the order of rows that rotations need."""

from __future__ import annotations

import math

import torch
from outrider.models.config import RopeConfig
from torch import Tensor

_AT_ONCE = 4096
"""Positions whose rotations are computed in float64 at once."""


def frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position of each pair, float32 [head_dim / 2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.factor
    return _llama3(plain, rope) if rope.kind == "llama3" else plain


def _llama3(plain: Tensor, rope: RopeConfig) -> Tensor:
    """Llama 3.1's scaling: divides long wavelengths by the factor, keeps short ones, interpolates between."""
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    wavelengths = 2 * math.pi / plain
    share = (rope.original_length / wavelengths - low) / (high - low)
    between = (1 - share) * plain / rope.factor + share * plain
    scaled = torch.where(wavelengths > rope.original_length / low, plain / rope.factor, plain)
    is_between = (wavelengths <= rope.original_length / low) & (wavelengths >= rope.original_length / high)
    return torch.where(is_between, between, scaled)


def turns(rope: RopeConfig, head_dim: int, positions: int) -> Tensor:
    """Rotations ``exp(i * position * frequency)``, complex64 [positions, 1, head_dim / 2].

    Angles are float32, as in training; their cosines and sines are computed in float64.
    """
    per_position = frequencies(rope, head_dim)
    table = torch.empty(positions, 1, head_dim // 2, dtype=torch.complex64)
    for rows, steps in zip(torch.split(table, _AT_ONCE), torch.split(torch.arange(positions), _AT_ONCE), strict=True):
        angles = torch.outer(steps.float(), per_position).double()
        rows.copy_(torch.polar(torch.ones_like(angles), angles).unsqueeze(1))
    return table


def interleave(rows: Tensor, head_dim: int) -> Tensor:
    """Reorders rows [heads * head_dim, ...] of a checkpoint from pairs (i, i + head_dim / 2) to (2i, 2i + 1)."""
    halves = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)
