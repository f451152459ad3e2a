"""Weights quantized to fewer bits: quants, and the weights that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Quantization = Literal["int8", "int4", "fp8"]

GROUP = 128
"""Consecutive input features that share a scale and a zero point in four bits."""

FP8_LARGEST = 448.0
"""Largest number of e4m3 (Micikevicius et al. 2022, "FP8 formats for deep learning")."""


@dataclass(frozen=True, slots=True)
class ScaledWeight:
    """Quants with one scale an output feature: element (n, k) stands for ``quants[n, k] * scales[n]``.

    Attributes:
        quants: [out_features, in_features], int8 of -127 to 127, or float8_e4m3fn.
        scales: float32 [out_features]; with int8 quants rounded to the dtype of the weight.
    """

    quants: Tensor
    scales: Tensor

    def dequantized(self) -> Tensor:
        """The weight that the quants stand for: float32 [out_features, in_features]."""
        return self.quants.float() * self.scales[:, None]


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """Quants with a scale and a zero point for each output feature and `GROUP` input features.

    Element (n, k) stands for ``(quants[n, k] - zeros[n, k // GROUP]) * scales[n, k // GROUP]``.

    Attributes:
        quants: uint8 [out_features, groups * GROUP] of 0 to 15; beyond the input features they stand for 0.
        scales: float32 [out_features, groups], rounded to the dtype of the weight.
        zeros: uint8 [out_features, groups] of 0 to 15.
        in_features: of the weight.
    """

    quants: Tensor
    scales: Tensor
    zeros: Tensor
    in_features: int

    def dequantized(self) -> Tensor:
        """The weight that the quants stand for: float32 [out_features, in_features]."""
        steps = self.quants.view(*self.zeros.shape, GROUP).float() - self.zeros[..., None].float()
        return (steps * self.scales[..., None]).flatten(1)[:, : self.in_features]


def quantize_int8(weight: Tensor) -> ScaledWeight:
    """Symmetric eight-bit quants of [out_features, in_features].

    An element is off by at most half its scale, the largest of a row also by the rounding of the scale.
    """
    scales = _positive((weight.float().abs().amax(1) / 127).to(weight.dtype).float())
    return ScaledWeight((weight.float() / scales[:, None]).round_().clamp_(-127, 127).to(torch.int8), scales)


def quantize_fp8(weight: Tensor) -> ScaledWeight:
    """E4m3 quants of [out_features, in_features], scaled so that the largest of a row is `FP8_LARGEST`."""
    weight = weight.float()
    scales = _positive(weight.abs().amax(1) / FP8_LARGEST)
    quants = (weight / scales[:, None]).clamp_(-FP8_LARGEST, FP8_LARGEST).to(torch.float8_e4m3fn)
    return ScaledWeight(quants, scales)


def quantize_int4(weight: Tensor) -> GroupedWeight:
    """Asymmetric four-bit quants of [out_features, in_features]: 0 to 15 span each group's range and zero.

    An element inside the range is off by at most half its scale, one at an end by at most one and the rounding of the
    scale.
    """
    out_features, in_features = weight.shape
    groups = -(-in_features // GROUP)
    padded = torch.nn.functional.pad(weight.float(), (0, groups * GROUP - in_features)).view(
        out_features, groups, GROUP
    )
    low, high = padded.amin(2).clamp_(max=0), padded.amax(2).clamp_(min=0)
    scales = _positive(((high - low) / 15).to(weight.dtype).float())
    zeros = (-low / scales).round_().clamp_(0, 15)
    quants = (padded / scales[..., None]).round_().add_(zeros[..., None]).clamp_(0, 15)
    return GroupedWeight(quants.to(torch.uint8).flatten(1), scales, zeros.to(torch.uint8), in_features)


def _positive(scales: Tensor) -> Tensor:
    return torch.where(scales > 0, scales, 1.0)
