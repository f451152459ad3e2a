"""linear: matmuls with a weight that is packed once, and optionally quantized, for few rows."""

from __future__ import annotations

from typing import get_args

import torch
from outrider.kernels.backend import takes_triton
from outrider.kernels.linear import cpu, gpu
from outrider.kernels.linear.cpu import Linear
from outrider.kernels.linear.quantize import (
    GroupedWeight,
    Quantization,
    ScaledWeight,
    quantize_fp8,
    quantize_int4,
    quantize_int8,
)
from outrider.native.quantized import QuantizedWeight
from torch import Tensor

__all__ = [
    "GroupedWeight",
    "Linear",
    "Quantization",
    "ScaledWeight",
    "pack",
    "pack_quantized",
    "quantize_fp8",
    "quantize_int4",
    "quantize_int8",
]


def pack(
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    few_rows: bool = False,
    quantization: Quantization | None = None,
) -> Linear:
    """The quickest form of a weight on its device.

    Rows are in the weight's dtype whatever the quantization. On a GPU, without ``few_rows``, a row's bits do not
    depend on the other rows or their number, and they are the same on every GPU of one compute capability; on a CPU
    see `outrider.kernels.invariance`.

    Args:
        weight: [out_features, in_features], float32, bfloat16 or float16.
        bias: [out_features].
        few_rows: whether few rows may be computed in another way than many, with other last bits.
        quantization: ``int8`` (a scale for each output feature), ``int4`` (a scale and a zero point for each output
            feature and 128 input features), ``fp8`` (e4m3, as its rows are too, with a scale for each
            row; on GPUs that multiply it), or None.

    Raises:
        ValueError: the device does not support the quantization, or there is none of that name.
    """
    if quantization not in (None, *get_args(Quantization)):
        raise ValueError(f"quantization is {quantization!r}; it must be one of {', '.join(get_args(Quantization))}")
    if takes_triton(weight.device):
        return gpu.pack(weight, bias, quantization, strict=not few_rows)
    return cpu.pack(weight, bias, quantization, few_rows=few_rows)


def pack_quantized(
    weight: QuantizedWeight,
    bias: Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
    *,
    few_rows: bool = False,
) -> Linear:
    """The quickest form of a weight whose quants are given, on ``device``.

    With Triton, quants stay as they are, in four or eight bits each. Elsewhere the weight is what the quants stand for,
    rounded to ``dtype``. Rows are rounded to eight-bit floats where the weight's format says so and the GPU multiplies
    these: a scale for each row, or for each 128 of its features where the weight has such groups.

    Args:
        weight: quants of [out_features, in_features].
        bias: [out_features] on ``device``, in ``dtype``.
        dtype: of the rows and of the result: float32, bfloat16 or float16.
        device: of the weight.
        few_rows: as for `pack`.
    """
    if takes_triton(device):
        return gpu.pack_quantized(weight, bias, dtype, device, strict=not few_rows)
    return cpu.pack_quantized(weight, bias, dtype, device, few_rows=few_rows)
