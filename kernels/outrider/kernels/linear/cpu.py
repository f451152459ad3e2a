"""linear on CPU: oneDNN's packed weights, which few-row matmuls read about twice as fast as plain ones.

Matmuls with quantized weights are torch's own, which take twice as long for two rows as for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Protocol

import torch
from outrider.kernels.linear.quantize import GROUP, Quantization, quantize_int4, quantize_int8
from outrider.native.quantized import QuantizedWeight, dequantized
from torch import Tensor

_PACKED_FOR_ROWS = 8
_COPIED_BELOW = 2**20
"""Elements of a weight up to which a second copy is kept for few rows."""
_TIMED_ROWS = (1, 2, 4, 8, 16, 32, 64)
_INT8_COLUMNS = 64
"""Input features of a vector: torch's matmul of eight-bit quants needs a multiple."""
_INT4_ROWS = 16
"""Output features of torch's blocks of four-bit quants."""


class Linear(Protocol):
    """``x @ weight.T + bias``: [n, in_features] to [n, out_features], in the weight's dtype."""

    in_features: int
    out_features: int
    dtype: torch.dtype

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        ...


class PlainLinear:
    """The weight as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        return torch.nn.functional.linear(x, self._weight, self._bias)


class PackedLinear:
    """The weight in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
        self._bias = bias
        self._linear = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        matmul: Tensor = self._linear(x, self._weight, self._bias, "none", (), "")
        return matmul


class FewRowsLinear:
    """A packed weight beside a transposed one, which on many machines is quicker for few rows of a small weight."""

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self._packed = PackedLinear(weight, None)
        self._transposed = weight.T.contiguous()
        self._few = _few_rows(self.in_features, self.out_features, torch.get_num_threads())

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        return torch.mm(x, self._transposed) if x.shape[0] <= self._few else self._packed(x)


@cache
def _few_rows(in_features: int, out_features: int, threads: int) -> int:
    """Rows up to which a float32 matmul is quicker on this machine with the transposed weight."""
    weight = torch.randn(out_features, in_features)
    packed, transposed = PackedLinear(weight, None), weight.T.contiguous()
    few = 0
    for rows in _TIMED_ROWS:
        x = torch.randn(rows, in_features)
        if _least_time(partial(torch.mm, x, transposed)) > _least_time(partial(packed, x)):
            break
        few = rows
    return few


def _least_time(matmul: Callable[[], Tensor], rounds: int = 15) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        matmul()
        times.append(time.perf_counter() - start)
    return min(times)


class Int8Linear:
    """Eight-bit quants. Matmuls are quicker than with the plain weight only for a single row of bfloat16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        quantized = quantize_int8(weight)
        self._filling = -self.in_features % _INT8_COLUMNS
        self._quants = torch.nn.functional.pad(quantized.quants, (0, self._filling))
        self._scales = quantized.scales.to(weight.dtype)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        filled = torch.nn.functional.pad(x, (0, self._filling)) if self._filling else x
        matmul: Tensor = torch.ops.aten._weight_int8pack_mm(filled, self._quants, self._scales)
        return matmul if self._bias is None else matmul + self._bias


class Int4Linear:
    """Four-bit quants, in the blocks that torch reads, padded where a side is no multiple of a block."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self._bias = bias
        quantized = quantize_int4(weight)
        rows = -self.out_features % _INT4_ROWS
        quants = torch.nn.functional.pad(quantized.quants, (0, 0, 0, rows)).int()
        self._filling = quants.shape[1] - self.in_features
        self._quants = torch.ops.aten._convert_weight_to_int4pack_for_cpu(quants, 1)
        offsets = (8 - quantized.zeros.float()) * quantized.scales
        pairs = torch.stack([quantized.scales.T, offsets.T], dim=-1)
        self._scales = torch.nn.functional.pad(pairs, (0, 0, 0, rows)).to(weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        filled = torch.nn.functional.pad(x, (0, self._filling)) if self._filling else x
        matmul: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(filled, self._quants, GROUP, self._scales)
        matmul = matmul[:, : self.out_features].contiguous()
        return matmul if self._bias is None else matmul + self._bias


def pack(
    weight: Tensor, bias: Tensor | None, quantization: Quantization | None = None, *, few_rows: bool = False
) -> Linear:
    """See `outrider.kernels.linear.pack`; on other devices than CPUs the weight stays as it is."""
    if quantization is not None:
        return _quantized(weight, bias, quantization)
    if not _packs(weight):
        return PlainLinear(weight, bias)
    if few_rows and bias is None and weight.dtype == torch.float32 and weight.numel() <= _COPIED_BELOW:
        return FewRowsLinear(weight)
    return PackedLinear(weight, bias)


def pack_quantized(
    weight: QuantizedWeight, bias: Tensor | None, dtype: torch.dtype, device: torch.device, *, few_rows: bool
) -> Linear:
    """See `outrider.kernels.linear.pack_quantized`: the numbers that the quants stand for, in ``dtype``."""
    return pack(dequantized(weight, dtype).to(device), bias, few_rows=few_rows)


def _quantized(weight: Tensor, bias: Tensor | None, quantization: Quantization) -> Linear:
    if weight.device.type != "cpu":
        raise ValueError(f'quantization = "{quantization}" on {weight.device} needs Triton, which is not in use')
    if quantization == "fp8":
        raise ValueError('quantization = "fp8" needs a GPU that multiplies it; on a CPU there are "int8" and "int4"')
    return Int8Linear(weight, bias) if quantization == "int8" else Int4Linear(weight, bias)


def _packs(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
