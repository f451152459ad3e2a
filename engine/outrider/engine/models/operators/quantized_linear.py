"""Matmuls on a GPU with quantized weights, run an operator at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from outrider.kernels.linear import Linear, pack, pack_quantized
from outrider.native.quantized import QuantFormat, QuantizedWeight, Quants
from outrider.native.weights import Part
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Stacked:
    """The output features of several weights of one format, one weight after the other."""

    weights: tuple[QuantizedWeight, ...]

    @property
    def format(self) -> QuantFormat:
        """See `QuantizedWeight`."""
        return self.weights[0].format

    @property
    def shape(self) -> tuple[int, int]:
        """See `QuantizedWeight`."""
        return sum(weight.shape[0] for weight in self.weights), self.weights[0].shape[1]

    def quants(self, rows: Tensor) -> Quants:
        """See `QuantizedWeight`."""
        parts, places, first = [], [], 0
        for weight in self.weights:
            (place,) = torch.nonzero((rows >= first) & (rows < first + weight.shape[0]), as_tuple=True)
            if len(place):
                parts.append(weight.quants(rows[place] - first))
                places.append(place)
            first += weight.shape[0]
        order = torch.cat(places).argsort()

        def joined(of: Callable[[Quants], Tensor | None]) -> Tensor | None:
            tensors = [tensor for part in parts if (tensor := of(part)) is not None]
            return torch.cat(tensors)[order] if tensors else None

        quants, scales = (
            torch.cat(list(each))[order] for each in zip(*((p.quants, p.scales) for p in parts), strict=True)
        )
        return Quants(
            quants,
            scales,
            joined(lambda part: part.minima),
            joined(lambda part: part.scale_units),
            joined(lambda part: part.minimum_units),
        )


class SideBySide:
    """Projections of the same rows, whose results stand side by side."""

    def __init__(self, linears: Sequence[Linear]) -> None:
        self.in_features, self.dtype = linears[0].in_features, linears[0].dtype
        self.out_features = sum(linear.out_features for linear in linears)
        self._linears = linears

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        return torch.cat([linear(x) for linear in self._linears], 1)


def quantized_linear(parts: Sequence[Part], dtype: torch.dtype, device: torch.device, *, few_rows: bool) -> Linear:
    """The projection of parts, of which some are quantized: one matmul if all are in one format.

    Args:
        parts: weights and biases; tensors are in ``dtype`` on ``device``.
        dtype: of the rows and of the result.
        device: of the weights.
        few_rows: see `pack`.
    """
    weights = [part.weight for part in parts if not isinstance(part.weight, Tensor)]
    biases = [part.bias for part in parts if part.bias is not None]
    if len(weights) == len(parts) and len({weight.format for weight in weights}) == 1:
        bias = torch.cat(biases) if biases else None
        return pack_quantized(Stacked(tuple(weights)), bias, dtype, device, few_rows=few_rows)
    linears = [
        pack(part.weight, part.bias, few_rows=few_rows)
        if isinstance(part.weight, Tensor)
        else pack_quantized(part.weight, part.bias, dtype, device, few_rows=few_rows)
        for part in parts
    ]
    return linears[0] if len(linears) == 1 else SideBySide(linears)
