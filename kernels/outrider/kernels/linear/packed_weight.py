"""Weights in the layout that the Triton kernel reads.

Quants of at most eight bits are packed in 16-bit words. Two neighbouring words in one register thus hold two
neighbouring elements of an operand at each quant's place, and unpacking needs no exchange between threads
(Kim et al. 2022, "Who says elephants can't run", unpack so for another layout). Of a block of ``parts * span`` input
features, with ``parts`` quants a word, word j holds features ``j``, ``j + span``, and so on, the first in the lowest
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.kernels.linear.quantize import (
    GROUP,
    GroupedWeight,
    Quantization,
    ScaledWeight,
    quantize_fp8,
    quantize_int4,
    quantize_int8,
)
from torch import Tensor

MAGIC = {torch.bfloat16: 128.0, torch.float16: 1024.0, torch.float32: 0.0}
"""A number whose lowest bits are free for a small integer: a bitwise or adds the integer, a subtraction isolates it."""

FP8_COLUMNS = 16
"""Input features of eight-bit floats are padded to a multiple of this, so that whole vectors are loaded."""


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight of [out_features, in_features].

    Attributes:
        words: [out_features, in_features] in ``dtype``, or float8_e4m3fn filled to a multiple of `FP8_COLUMNS`, or
            int16 [out_features, blocks * span]. Eight bits have a sign, four bits have none.
            Eight-bit floats in int16 are widened to ``dtype``, and rows are not rounded.
        parts: quants a word.
        in_features: of the weight.
        dtype: of the rows that it multiplies and of the result.
        scales: None, or float32 [out_features], or [groups, out_features] in ``dtype``, float32, or 8-bit integers.
        zeros: for four bits ``-(MAGIC + zero point)``: [groups, out_features] in ``dtype``, or one number.
        span: input features that have the same place in the words of a block.
        group: input features of a group, a multiple of ``span``; 0 where an output feature has one scale.
        minima: what is subtracted from each element of a group, like ``scales``.
        scale_units: float32 [units, out_features], what 8-bit scales count; None for other scales.
        minimum_units: the same for minima.
        floats: whether words hold eight-bit floats (e4m3).
    """

    words: Tensor
    parts: int
    in_features: int
    dtype: torch.dtype
    scales: Tensor | None = None
    zeros: Tensor | float | None = None
    span: int = 0
    group: int = 0
    minima: Tensor | None = None
    scale_units: Tensor | None = None
    minimum_units: Tensor | None = None
    floats: bool = False

    @property
    def out_features(self) -> int:
        """Output features of the weight."""
        return self.words.shape[0]

    @property
    def fp8(self) -> bool:
        """Whether rows are multiplied in eight-bit floats, as the weight is kept."""
        return self.words.dtype == torch.float8_e4m3fn


def pack_weight(weight: Tensor, quantization: Quantization | None) -> PackedWeight:
    """Quantizes and packs [out_features, in_features]; results have the dtype of ``weight``."""
    if quantization == "int8":
        return pack_int8(quantize_int8(weight), weight.dtype)
    if quantization == "int4":
        return pack_int4(quantize_int4(weight), weight.dtype)
    if quantization == "fp8":
        scaled = quantize_fp8(weight)
        quants = torch.nn.functional.pad(scaled.quants.view(torch.uint8), (0, -weight.shape[1] % FP8_COLUMNS))
        return PackedWeight(quants.view(torch.float8_e4m3fn), 1, weight.shape[1], weight.dtype, scaled.scales)
    return PackedWeight(weight.contiguous(), 1, weight.shape[1], weight.dtype)


def pack_int8(weight: ScaledWeight, dtype: torch.dtype) -> PackedWeight:
    """Two quants a word."""
    in_features = weight.quants.shape[1]
    quants = torch.nn.functional.pad(weight.quants.view(torch.uint8), (0, -in_features % GROUP))
    return PackedWeight(words_of(quants, 2, GROUP // 2), 2, in_features, dtype, weight.scales, span=GROUP // 2)


def pack_int4(weight: GroupedWeight, dtype: torch.dtype) -> PackedWeight:
    """Four quants a word."""
    scales = weight.scales.T.to(dtype).contiguous()
    zeros = weight.zeros.T.float().add(MAGIC[dtype]).neg().to(dtype).contiguous()
    words = words_of(weight.quants, 4, GROUP // 4)
    return PackedWeight(words, 4, weight.in_features, dtype, scales, zeros, span=GROUP // 4, group=GROUP)


def words_of(quants: Tensor, parts: int, span: int) -> Tensor:
    """Uint8 [n, blocks * parts * span] of 16 / parts bits each as int16 [n, blocks * span]."""
    blocks = quants.view(len(quants), -1, parts, span)
    words = blocks[:, :, 0].to(torch.int32)
    for part in range(1, parts):
        words |= blocks[:, :, part].to(torch.int32) << part * (16 // parts)
    return torch.where(words >= 2**15, words - 2**16, words).to(torch.int16).flatten(1)
