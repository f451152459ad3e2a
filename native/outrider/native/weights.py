"""Weights and sizes of a compiled decoder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from outrider.native.quantized import QuantizedWeight
from torch import Tensor

HEAD_DIMS = (16, 32, 64, 80, 96, 128, 256)
"""Sizes of a head for which there is compiled code."""


DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes of weights that are not quantized."""
MOST_PARTS = 3
DENSE_BLOCK = 64
"""Output features of a block of a weight that is not quantized."""
STRIP = 16
"""Output features of a strip of a quantized weight."""


@dataclass(frozen=True, slots=True)
class Part:
    """A weight [out_features, in_features] and a bias [out_features] or None."""

    weight: Tensor | QuantizedWeight
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """Up to `MOST_PARTS` parts, whose results stand side by side."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer; norms are float32, None where they are folded into the next projection or there are none.

    Queries and keys are in the interleaved rotary order of `outrider.kernels.rope_kv_write`; ``qkv`` and ``gate_up``
    are joined projections, ``head_norm`` is [heads + kv_heads, head_dim].

    Attributes:
        after_attention: norm of the attention's result.
        after_feed_forward: norm of the feed-forward block's result.
        key_balance: float32 [heads + kv_heads, head_dim], factors of queries and keys behind their norms; None is 1.
        window: latest positions that a row sees, its own included; None is all.
        rope: complex64 [positions, head_dim / 2], rotary; None is the decoder's.
        router: in a layer with experts, scores of the experts, in place of ``gate_up`` and ``down``.
        experts: joined gate and up projection and down projection of each, read one by one.
    """

    attention_norm: Tensor | None
    qkv: Projection
    head_norm: Tensor | None
    output: Projection
    feed_forward_norm: Tensor | None
    gate_up: Projection | None
    down: Projection | None
    after_attention: Tensor | None = None
    after_feed_forward: Tensor | None = None
    key_balance: Tensor | None = None
    window: int | None = None
    rope: Tensor | None = None
    router: Projection | None = None
    experts: Iterable[tuple[Projection, Projection]] = ()


@dataclass(frozen=True, slots=True)
class Features:
    """Features of an EAGLE-3 head: its first layer reads the normed ones behind the normed embedding.

    Attributes:
        norm: float32 [hidden].
        normed_residual: whether the residual stream begins with the normed features; else with the features.
    """

    norm: Tensor
    normed_residual: bool


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a decoder.

    Attributes:
        eps: of the norms.
        query_scale: factor of scores; None is 1 / sqrt(head_dim).
        embedding_scale: factor of the embedding.
        gelu: whether the gate's activation is gelu; else silu.
        experts: of a layer that has any.
        active: experts that each row goes through.
        expert_intermediate: width between the two halves of an expert.
        normed: whether the shares of a row's experts are divided by their sum.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    eps: float
    query_scale: float | None = None
    embedding_scale: float = 1.0
    gelu: bool = False
    experts: int = 0
    active: int = 0
    expert_intermediate: int = 0
    normed: bool = False

    def refusal(self, dtype: torch.dtype) -> str | None:
        """Why there is no compiled code for this shape; None where there is."""
        if dtype not in DTYPES:
            return f"weights in {dtype}; only {', '.join(map(str, DTYPES))} are compiled"
        if self.head_dim not in HEAD_DIMS:
            return f"heads of {self.head_dim}; only {', '.join(map(str, HEAD_DIMS))} are compiled"
        for width in (self.intermediate, self.expert_intermediate):
            if self.hidden % 16 or width % 16:
                return f"{self.hidden} hidden and {width} intermediate features; both must be multiples of 16"
        return None
