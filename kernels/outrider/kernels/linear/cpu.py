"""linear on CPU: oneDNN's packed weights, which few-row products read about twice as fast as plain ones."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

_PACKED_FOR_ROWS = 8
_COPIED_BELOW = 2**20
"""Elements of a weight up to which a second copy is kept for single rows."""


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
        product: Tensor = self._linear(x, self._weight, self._bias, "none", (), "")
        return product


class SingleRowLinear:
    """A packed weight beside a transposed one, by which a single row of a small float32 weight is quicker."""

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self.dtype = weight.dtype
        self._packed = PackedLinear(weight, None)
        self._transposed = weight.T.contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        """[n, out_features]."""
        return torch.mm(x, self._transposed) if x.shape[0] == 1 else self._packed(x)


def pack(weight: Tensor, bias: Tensor | None = None, *, single_rows: bool = False) -> Linear:
    """The quickest form of a weight on its device.

    Args:
        weight: [out_features, in_features].
        bias: [out_features].
        single_rows: whether a single row may go another way than several, and so get other last bits.
    """
    if not _packs(weight):
        return PlainLinear(weight, bias)
    if single_rows and bias is None and weight.dtype == torch.float32 and weight.numel() <= _COPIED_BELOW:
        return SingleRowLinear(weight)
    return PackedLinear(weight, bias)


def _packs(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
