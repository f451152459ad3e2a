"""A whole decoder in one call on a CPU, in C++ that is compiled for the machine at hand.

An operator at a time, a small model's step on a CPU is mostly the way from one operator to the next. Here a step is one
call, which holds no lock of Python's. A row's bits depend on nothing but what it sees: products sum over the input
features in their order whatever the number of rows, attention over fixed blocks of absolute positions.
"""

from __future__ import annotations

from outrider.kernels.native.build import NativeUnavailable, library
from outrider.kernels.native.decoder import HEAD_DIMS, DecoderShape, LayerWeights, NativeDecoder, Product

__all__ = ["HEAD_DIMS", "DecoderShape", "LayerWeights", "NativeDecoder", "NativeUnavailable", "Product", "library"]
