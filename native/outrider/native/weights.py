"""Weights and sizes of a compiled decoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.native.quantized import QuantizedWeight
from torch import Tensor

HEAD_DIMS = (16, 32, 64, 80, 96, 128, 256)
"""Sizes of a head for which there is compiled code."""


DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes of weights that are not in codes."""
MOST_PARTS = 3
DENSE_BLOCK = 64
"""Output features of a block of a weight that is not in codes."""


@dataclass(frozen=True, slots=True)
class Part:
    """A weight [out_features, in_features] and a bias [out_features] or None."""

    weight: Tensor | QuantizedWeight
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Product:
    """Up to `MOST_PARTS` parts, whose results stand side by side."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer; norms are float32, None where they are folded into the next product.

    Queries and keys are in the interleaved rotary order of `outrider.kernels.rope_kv_write`; ``qkv`` and ``gate_up``
    are joined products, ``head_norm`` is [heads + kv_heads, head_dim].
    """

    attention_norm: Tensor | None
    qkv: Product
    head_norm: Tensor | None
    output: Product
    feed_forward_norm: Tensor | None
    gate_up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a decoder; ``eps`` belongs to its norms."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    eps: float

    def refusal(self, dtype: torch.dtype) -> str | None:
        """Why there is no compiled code for this shape; None where there is."""
        if dtype not in DTYPES:
            return f"weights in {dtype}; only {', '.join(map(str, DTYPES))} are compiled"
        if self.head_dim not in HEAD_DIMS:
            return f"heads of {self.head_dim}; only {', '.join(map(str, HEAD_DIMS))} are compiled"
        if self.hidden % 16 or self.intermediate % 16:
            return f"{self.hidden} hidden and {self.intermediate} intermediate features; both must be multiples of 16"
        return None
