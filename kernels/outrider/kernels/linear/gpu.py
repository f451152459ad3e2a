"""linear on a GPU: a packed weight behind the Triton kernel."""

from __future__ import annotations

import torch
from outrider.kernels.linear import quantized_packing
from outrider.kernels.linear.packed_weight import PackedWeight, pack_weight
from outrider.kernels.linear.quantize import Quantization
from outrider.native.quantized import QuantizedWeight
from torch import Tensor

_FP8_FROM = (8, 9)


class GpuLinear:
    """A weight in a format that the kernel reads.

    ``strict`` keeps a row's bits from depending on the number of rows.

    Attributes:
        weight: the weight.
    """

    def __init__(self, weight: PackedWeight, bias: Tensor | None, *, strict: bool) -> None:
        from outrider.kernels.linear import triton

        self.in_features, self.out_features, self.dtype = weight.in_features, weight.out_features, weight.dtype
        self.weight, self._bias = weight, bias
        self._strict = strict
        self._linear = triton.linear

    @property
    def plain(self) -> Tensor | None:
        """The weight [out_features, in_features], if it is not quantized and there is no bias."""
        quantized = self.weight.parts > 1 or self.weight.scales is not None
        return None if quantized or self._bias is not None else self.weight.words

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        return self._linear(x, self.weight, self._bias, strict=self._strict)


def pack(weight: Tensor, bias: Tensor | None, quantization: Quantization | None, *, strict: bool) -> GpuLinear:
    """See `outrider.kernels.linear.pack`."""
    if quantization == "fp8" and not multiplies_fp8(weight.device):
        capability = torch.cuda.get_device_capability(weight.device)
        raise ValueError(
            'quantization = "fp8" needs tensor cores for it, of compute capability 8.9 or 9.0 on; this GPU has '
            f'{capability[0]}.{capability[1]}: "int8" keeps as many bytes, with a smaller error'
        )
    return GpuLinear(pack_weight(weight, quantization), bias, strict=strict)


def pack_quantized(
    weight: QuantizedWeight, bias: Tensor | None, dtype: torch.dtype, device: torch.device, *, strict: bool
) -> GpuLinear:
    """See `outrider.kernels.linear.pack_quantized`."""
    packed = quantized_packing.pack_quantized(weight, dtype, device, rounds_rows=multiplies_fp8(device))
    return GpuLinear(packed, bias, strict=strict)


def multiplies_fp8(device: torch.device) -> bool:
    """Whether tensor cores of ``device`` multiply eight-bit floats; of a CPU, the interpreter does."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= _FP8_FROM
