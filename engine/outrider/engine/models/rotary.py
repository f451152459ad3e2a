"""Rotary positions: frequencies of a model, the table of rotations, and the order of rows that rotations need."""

from __future__ import annotations

import math

import torch
from outrider.engine.models.families.rope import RopeConfig
from torch import Tensor

_AT_ONCE = 4096
"""Positions whose rotations are computed in float64 at once."""


def frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position of each pair that is rotated, float32."""
    rotated = rope.rotated(head_dim)
    exponents = torch.arange(0, rotated, 2, dtype=torch.int64).to(torch.float32) / rotated
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "yarn":
        return _yarn(plain, rope, rotated)
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


def _yarn(plain: Tensor, rope: RopeConfig, rotated: int) -> Tensor:
    """YaRN's scaling: keeps pairs of many rotations, divides those of few by the factor, with a ramp between them."""
    first, last = _pair_of(rope.beta_fast, rope, rotated), _pair_of(rope.beta_slow, rope, rotated)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotated - 1)
    ramp = (torch.arange(rotated // 2, dtype=torch.float32) - first) / (last - first if last != first else 0.001)
    divided = ramp.clamp(0, 1)
    return plain / rope.factor * divided + plain * (1 - divided)


def _pair_of(rotations: float, rope: RopeConfig, rotated: int) -> float:
    """The pair that makes so many rotations within the original length, as a fraction of pairs."""
    return rotated * math.log(rope.original_length / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))


def rope_table(rope: RopeConfig, head_dim: int, positions: int) -> Tensor:
    """Rotations ``exp(i * position * frequency)``, complex64 [positions, 1, head_dim / 2].

    Angles are float32, as in training; their cosines and sines are computed in float64. Rotations of rotated pairs are
    times the attention factor; pairs that are not rotated have 1.
    """
    per_position = frequencies(rope, head_dim)
    table = torch.ones(positions, 1, head_dim // 2, dtype=torch.complex64)
    rotated = table[:, 0, : len(per_position)]
    for rows, steps in zip(torch.split(rotated, _AT_ONCE), torch.split(torch.arange(positions), _AT_ONCE), strict=True):
        angles = torch.outer(steps.float(), per_position).double()
        rows.copy_(torch.polar(torch.full_like(angles, rope.attention_factor), angles))
    return table


def interleave(rows: Tensor, head_dim: int, rotated: int | None = None) -> Tensor:
    """Reorders rows [heads * head_dim, ...] of a checkpoint from pairs (i, i + rotated / 2) to (2i, 2i + 1).

    ``rotated`` is how many of a head's rows form pairs, from the first on; None is all. The others keep their places.
    """
    rotated = rotated or head_dim
    heads = rows.reshape(-1, head_dim, *rows.shape[1:])
    pairs = heads[:, :rotated].reshape(-1, 2, rotated // 2, *rows.shape[1:]).transpose(1, 2)
    if rotated == head_dim:
        return pairs.reshape(rows.shape)
    return torch.cat([pairs.reshape(-1, rotated, *rows.shape[1:]), heads[:, rotated:]], dim=1).reshape(rows.shape)
