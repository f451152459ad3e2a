"""Packs weights of a quantized checkpoint for the Triton kernel. Quants stay what they are: nothing is rounded again.

Four bits have no sign; a zero point is subtracted where quants are unpacked. Five bits and more are packed as eight
bits with a sign, less their zero point. Other minima are subtracted from sums:
``scale * sum(quant * x) - minimum * sum(x)``. Eight-bit floats stand one after the other where the rows that they
multiply are rounded to eight bits, too, and in words where they are widened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from outrider.kernels.linear.packed_weight import FP8_COLUMNS, MAGIC, PackedWeight, words_of
from outrider.kernels.linear.quantize import GROUP
from outrider.native.quantized import UNIT_GROUP, QuantFormat, QuantizedWeight, Quants
from torch import Tensor

_ROWS_AT_ONCE = 4096
_SPANS = {2: (64, 32, 16), 4: (32, 16)}
_MOST_ZERO = 127
"""The largest zero point that `MAGIC` leaves exact in bfloat16."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a format is packed for a number of input features."""

    form: QuantFormat
    columns: int
    """Input features, filled up to whole blocks."""
    parts: int
    span: int
    group: int

    @classmethod
    def of(cls, form: QuantFormat, in_features: int, rounds_rows: bool) -> _Layout:
        parts = 4 if form.bits == 4 else 2
        whole = form.group >= in_features
        if rounds_rows and form.rounds_rows and (whole or form.group == GROUP):
            columns = in_features + -in_features % FP8_COLUMNS
            return cls(form, columns, 1, 0, columns if whole else GROUP)
        span = next(span for span in _SPANS[parts] if whole or form.group % span == 0)
        columns = in_features + -in_features % (parts * span)
        return cls(form, columns, parts, span, columns if whole else form.group)

    @property
    def less(self) -> int:
        """What is subtracted from quants before they are packed."""
        return 0 if self.form.bits == 4 or self.form.floats else 128 if self.form.bits == 8 else self.form.zero

    @property
    def counts(self) -> bool:
        """Whether scales stay whole multiples of their units."""
        return self.form.has_units and (self.form.bits == 4 or self.less == self.form.zero)

    def packed(self, quants: Tensor) -> Tensor:
        """Words of quants uint8 [rows, in_features]."""
        filled = torch.nn.functional.pad(quants - self.less, (0, self.columns - quants.shape[1]))
        return words_of(filled, self.parts, self.span) if self.parts > 1 else filled.view(torch.float8_e4m3fn)

    def by_group(self, numbers: Tensor, group: int) -> Tensor:
        """[rows, groups] as [groups, rows], filled up to the groups of all columns."""
        missing = -(-self.columns // group) - numbers.shape[1]
        return torch.nn.functional.pad(numbers, (0, missing)).T.contiguous()


def pack_quantized(
    weight: QuantizedWeight, dtype: torch.dtype, device: torch.device, *, rounds_rows: bool = True
) -> PackedWeight:
    """Packs a weight [out_features, in_features]; results have ``dtype``.

    Quants of the ``meta`` device are taken to have whole zero points, and scales that ``dtype`` holds.
    Without ``rounds_rows``, rows keep their bits though the format means them to be rounded.
    """
    (outer, inner), form = weight.shape, weight.format
    layout = _Layout.of(form, inner, rounds_rows)
    kind = torch.int16 if layout.parts > 1 else torch.float8_e4m3fn
    words = torch.empty(outer, layout.columns // layout.parts, dtype=kind, device=device)
    parts = []
    for first in range(0, outer, _ROWS_AT_ONCE):
        quants = weight.quants(torch.arange(first, min(first + _ROWS_AT_ONCE, outer)))
        words[first : first + len(quants.quants)] = layout.packed(quants.quants.to(device))
        parts.append(quants)
    return replace(_with_scales(layout, words, inner, dtype, parts), floats=form.floats)


def _with_scales(layout: _Layout, words: Tensor, inner: int, dtype: torch.dtype, parts: list[Quants]) -> PackedWeight:
    scales, minima = _joined(parts, "scales"), _joined(parts, "minima") if layout.form.has_minima else None
    if layout.counts:
        return _counted(layout, words, inner, dtype, parts)
    zeros: Tensor | float | None = None
    if layout.parts == 4:
        zeros, minima = _zeros(layout, scales, minima, dtype)
    elif layout.less != layout.form.zero:
        shift = scales * (layout.form.zero - layout.less)
        minima = shift if minima is None else minima + shift
    if layout.parts < 4 and minima is None and layout.group == layout.columns:
        return PackedWeight(words, layout.parts, inner, dtype, scales.flatten().to(words.device), span=layout.span)
    kind = torch.float32 if layout.form.floats else dtype
    of_groups = [
        None if each is None else _exact(layout.by_group(each, layout.group), kind).to(words.device)
        for each in (scales, minima)
    ]
    zeros = zeros.to(words.device) if isinstance(zeros, Tensor) else zeros
    return PackedWeight(
        words, layout.parts, inner, dtype, of_groups[0], zeros, layout.span, layout.group, of_groups[1]
    )  # fmt: skip


def _zeros(
    layout: _Layout, scales: Tensor, minima: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor | float, Tensor | None]:
    """What is added to unpacked four-bit quants, and the minima that are left."""
    magic = MAGIC[dtype]
    if minima is None:
        return -(magic + layout.form.zero), None
    zeros = torch.where(scales == 0, 0, minima / scales).round()
    if scales.is_meta or (torch.equal(zeros * scales, minima) and zeros.min() >= 0 and zeros.max() <= _MOST_ZERO):
        return layout.by_group(-(zeros + magic), layout.group).to(dtype), None
    return -magic, minima


def _counted(layout: _Layout, words: Tensor, inner: int, dtype: torch.dtype, parts: list[Quants]) -> PackedWeight:
    """Scales and minima as eight-bit counts of their units."""
    form, device = layout.form, words.device
    kind = torch.uint8 if form.has_minima else torch.int8
    packed = []
    for name, unit_name in (("scales", "scale_units"), ("minima", "minimum_units"))[: 2 if form.has_minima else 1]:
        units = _joined(parts, unit_name)
        each = units.repeat_interleave(UNIT_GROUP // form.group, 1)
        counts = torch.where(each == 0, 0, _joined(parts, name) / each).round().to(kind)
        packed += [
            layout.by_group(counts, layout.group).to(device),
            layout.by_group(units, UNIT_GROUP).to(device),
        ]
    zeros = -(MAGIC[dtype] + form.zero) if layout.parts == 4 else None
    scales, scale_units, minima, minimum_units = packed if form.has_minima else (*packed, None, None)
    return PackedWeight(
        words, layout.parts, inner, dtype, scales, zeros, layout.span, layout.group, minima, scale_units, minimum_units
    )  # fmt: skip


def _joined(parts: list[Quants], name: str) -> Tensor:
    return torch.cat([getattr(part, name) for part in parts])


def _exact(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers in ``dtype`` if it holds them all, else as they are."""
    narrow = numbers.to(dtype)
    return narrow if numbers.is_meta or torch.equal(narrow.float(), numbers) else numbers
