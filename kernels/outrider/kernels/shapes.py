"""Shapes of models, by which kernels are compiled, reported on and measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
from outrider.kernels.linear import Quantization
from outrider.native.quantized import QuantFormat


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes and dtypes that a model's kernels depend on.

    Attributes:
        name: on command lines and in tables.
        hidden: width of the residual stream.
        heads: of the queries.
        kv_heads: of the keys and values.
        head_dim: of a head.
        intermediate: width between the two halves of the feed-forward block.
        vocabulary: tokens.
        layers: of the decoder.
        dtype: of weights and matmuls.
        kv_dtype: of the pool.
        page_size: tokens of a page.
        head_norm: whether queries and keys are normed.
        norms_after: whether the results of both blocks of a layer are normed.
        gelu: whether the activation is gelu.
        quantization: of the layers' weights at load; None keeps them in ``dtype``.
        quants: format of the layers' weights in a quantized checkpoint, or None.
        experts: experts of a layer, each ``intermediate`` wide; 0 for one gated block.
        active: experts of a row.
    """

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    layers: int
    dtype: torch.dtype = torch.bfloat16
    kv_dtype: torch.dtype = torch.bfloat16
    page_size: int = 16
    head_norm: bool = False
    norms_after: bool = False
    gelu: bool = False
    quantization: Quantization | None = None
    quants: QuantFormat | None = None
    experts: int = 0
    active: int = 0

    @property
    def qkv(self) -> int:
        """Width of a row of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def stacked(self) -> bool:
        """Whether the experts' matmuls are those of `outrider.kernels.experts`, and not of `linear`."""
        return self.experts > 0 and self.quantization is None and self.quants is None

    @property
    def rounds_rows(self) -> bool:
        """Whether layers' matmuls round their rows to eight-bit floats."""
        return self.quantization == "fp8" or (self.quants is not None and self.quants.rounds_rows)

    @property
    def matmuls(self) -> dict[str, tuple[int, int]]:
        """Output and input features of each matmul of `linear` in ``dtype``."""
        block = {"gate_up": (2 * self.intermediate, self.hidden), "down": (self.hidden, self.intermediate)}
        return {
            "qkv": (self.qkv, self.hidden),
            "output": (self.hidden, self.heads * self.head_dim),
            **({} if self.stacked else block),
            "logits": (self.vocabulary, self.hidden),
        }


FLOAT8_BLOCKS = QuantFormat(8, 128, floats=True, rounds_rows=True)
"""Weights of DeepSeek-V3's and Qwen3's ``fp8``."""

_LLAMA = ModelShape("llama-3.1-8b", 4096, 32, 8, 128, 14336, 128256, 32)
_SHAPES = (
    ModelShape("pocket", 256, 4, 2, 64, 704, 4096, 8),
    _LLAMA,
    replace(_LLAMA, name="llama-3.1-8b-int8", quantization="int8"),
    replace(_LLAMA, name="llama-3.1-8b-int4", kv_dtype=torch.int8, quantization="int4"),
    ModelShape(
        "qwen3-32b-fp8",
        5120,
        64,
        8,
        128,
        25600,
        151936,
        64,
        kv_dtype=torch.float8_e4m3fn,
        head_norm=True,
        quantization="fp8",
    ),
    ModelShape("danube-1.8b-int8", 2560, 32, 8, 80, 6912, 32000, 24, torch.float16, torch.float16, quantization="int8"),
    replace(_LLAMA, name="llama-3.1-8b-awq", quants=QuantFormat(4, 128, has_minima=True)),
    replace(_LLAMA, name="llama-3.1-8b-gptq8", quants=QuantFormat(8, 128, 128)),
    replace(_LLAMA, name="llama-3.1-8b-q4-0", quants=QuantFormat(4, 32, 8)),
    replace(_LLAMA, name="llama-3.1-8b-q4-k", quants=QuantFormat(4, 32, has_minima=True, has_units=True)),
    replace(_LLAMA, name="llama-3.1-8b-q6-k", quants=QuantFormat(6, 16, 32, has_units=True)),
    replace(_LLAMA, name="llama-3.1-8b-float8", quants=FLOAT8_BLOCKS),
    replace(_LLAMA, name="llama-3.1-8b-float8-weights", quants=replace(FLOAT8_BLOCKS, rounds_rows=False)),
    ModelShape("qwen3-30b-a3b", 2048, 32, 4, 128, 768, 151936, 48, head_norm=True, experts=128, active=8),
    ModelShape("mixtral-8x7b", 4096, 32, 8, 128, 14336, 32000, 32, experts=8, active=2),
    ModelShape("heads-of-256", 3072, 16, 8, 256, 24576, 256000, 28),
    ModelShape("gemma-3-270m", 640, 4, 1, 256, 2048, 262144, 18, head_norm=True, norms_after=True, gelu=True),
)

SHAPES = {shape.name: shape for shape in _SHAPES}
"""By name: the shipped model, common models, and shapes for the other cases of the kernels."""


def names(known: Collection[str]) -> Callable[[str], list[str]]:
    """A reader of an argument that lists ``known`` names, separated by commas."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return names

    return read
