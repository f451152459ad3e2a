"""Weights in fewer than 16 bits: quants, and the numbers that quants stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

UNIT_GROUP = 256
"""Input features that share a unit of scales."""
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class QuantFormat:
    """What quants stand for: element (n, k) is ``scale * (quant - zero) - minimum``.

    Each output feature n and group ``k // group`` of input features has a scale and a minimum.

    Attributes:
        bits: of a quant: 4, 5, 6 or 8.
        group: consecutive input features that share a scale: 16, or a multiple of 32. Of floats the last group may be
            smaller, and the only one be larger than the weight.
        zero: the quant of zero where there are no minima.
        has_minima: whether groups have a minimum; ``zero`` is 0 then.
        has_units: whether scales and minima are whole multiples of units (see `Quants`).
        floats: whether quants are eight-bit floats (e4m3), without zero or minima.
        rounds_rows: whether rows are meant to be multiplied in eight-bit floats, too.
    """

    bits: int
    group: int
    zero: int = 0
    has_minima: bool = False
    has_units: bool = False
    floats: bool = False
    rounds_rows: bool = False


@dataclass(frozen=True, slots=True)
class Quants:
    """Quants of some output features.

    Attributes:
        quants: uint8 [rows, in_features], a quant a byte; floats are their bits.
        scales: float32 [rows, in_features / group].
        minima: float32 like ``scales``, or None.
        scale_units: float32 [rows, in_features / UNIT_GROUP], or None. Each scale is its unit times a whole number from
            -128 to 127, or from 0 to 255 where there are minima.
        minimum_units: the same for minima, times 0 to 255.
    """

    quants: Tensor
    scales: Tensor
    minima: Tensor | None = None
    scale_units: Tensor | None = None
    minimum_units: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Blocks:
    """Output features in blocks of a GGUF file, whose quants compiled code can read itself.

    Attributes:
        kind: name of the blocks' type in ggml, as ``Q4_K``.
        data: uint8 [rows, blocks of a row, bytes of a block].
        rows: int64 [out_features], the row of each.
    """

    kind: str
    data: Tensor
    rows: Tensor


@runtime_checkable
class WeightInBlocks(Protocol):
    """A `QuantizedWeight` that has blocks."""

    def in_blocks(self, rows: Tensor) -> Blocks | None:
        """Blocks of the output features ``rows``, int64, in that order; None where there are none."""
        ...


class QuantizedWeight(Protocol):
    """A weight [out_features, in_features] in quants, which it may read from a file when they are asked for."""

    @property
    def format(self) -> QuantFormat:
        """What the quants stand for."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Output and input features."""
        ...

    def quants(self, rows: Tensor) -> Quants:
        """Quants of the output features ``rows``, int64, in that order."""
        ...


@dataclass(frozen=True, slots=True)
class QuantsInMemory:
    """A `QuantizedWeight` of quants that are in memory."""

    format: QuantFormat
    all: Quants

    @property
    def shape(self) -> tuple[int, int]:
        """Output and input features."""
        rows, columns = self.all.quants.shape
        return rows, columns

    def quants(self, rows: Tensor) -> Quants:
        """See `QuantizedWeight`."""
        own = self.all

        def chosen(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows]

        return Quants(
            own.quants[rows],
            own.scales[rows],
            chosen(own.minima),
            chosen(own.scale_units),
            chosen(own.minimum_units),
        )


@dataclass(frozen=True, slots=True)
class Reordered:
    """A weight whose output features stand in another order, int64 ``order``."""

    weight: QuantizedWeight
    order: Tensor

    @property
    def format(self) -> QuantFormat:
        """See `QuantizedWeight`."""
        return self.weight.format

    @property
    def shape(self) -> tuple[int, int]:
        """See `QuantizedWeight`."""
        return len(self.order), self.weight.shape[1]

    def quants(self, rows: Tensor) -> Quants:
        """See `QuantizedWeight`."""
        return self.weight.quants(self.order[rows])

    def in_blocks(self, rows: Tensor) -> Blocks | None:
        """See `WeightInBlocks`."""
        return blocks_of(self.weight, self.order[rows])


def blocks_of(weight: QuantizedWeight, rows: Tensor) -> Blocks | None:
    """Blocks of the output features ``rows``, int64; None if the weight has none."""
    return weight.in_blocks(rows) if isinstance(weight, WeightInBlocks) else None


def dequantized(weight: QuantizedWeight, dtype: torch.dtype) -> Tensor:
    """The numbers that the quants stand for, [out_features, in_features] in ``dtype``."""
    numbers = torch.empty(weight.shape, dtype=dtype)
    for first in range(0, weight.shape[0], _ROWS_AT_ONCE):
        rows = torch.arange(first, min(first + _ROWS_AT_ONCE, weight.shape[0]))
        numbers[first : first + len(rows)] = _numbers(weight.format, weight.quants(rows)).to(dtype)
    return numbers


def _numbers(form: QuantFormat, quants: Quants) -> Tensor:
    if form.floats:
        columns = quants.quants.shape[1]
        scales = quants.scales.repeat_interleave(min(form.group, columns), 1)[:, :columns]
        return quants.quants.view(torch.float8_e4m3fn).float() * scales
    groups = quants.quants.view(len(quants.quants), -1, form.group).float() - form.zero
    groups *= quants.scales.unsqueeze(2)
    if quants.minima is not None:
        groups -= quants.minima.unsqueeze(2)
    return groups.flatten(1)
