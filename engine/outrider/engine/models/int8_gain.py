"""Whether weights of eight bits would make steps quicker: on a CPU without instructions for 16-bit floats they do."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.models.native import quantization_refusal
from torch import Tensor

_LEVELS = frozenset(["avxvnni", "avx2", "i8mm", "dotprod", "neon"])
"""Levels of compiled code that widen each 16-bit weight to 32 bits before they multiply it."""
_WEIGHTS = 1 << 25
_LEAST_BYTES = 8 * _WEIGHTS
"""Of a model's weights: smaller ones stay in the CPU's caches, where the measurement says nothing."""
_ROUNDS = 3
_WORTH = 1.2


def int8_hint(model: LlamaModel, least_bytes: int = _LEAST_BYTES, worth: float = _WORTH) -> str:
    """A sentence that names the setting, and how much quicker it makes matmuls here.

    Empty for a gain below ``worth``, and for a model with weights of fewer than ``least_bytes``.
    The weights' bits are never chosen by the CPU: streams move between verifiers on different ones.
    """
    decoder = model.compiled
    if decoder is None or decoder.library.level not in _LEVELS or model.dtype == torch.float32:
        return ""
    if model.quantized or decoder.weight_bytes < least_bytes or quantization_refusal(model.config, "int8"):
        return ""
    gain = _gain(model)
    if gain < worth:
        return ""
    dtype = str(model.dtype).removeprefix("torch.")
    return (
        f"This CPU has no instructions for {dtype}: with verifier.quantization = int8, or a Q8_0 GGUF file, a token's "
        f"matmuls are {gain:.1f} times as quick (measured)."
    )


def _gain(model: LlamaModel) -> float:
    """How many times as quick a matmul of one row is; each way's weights push the other's out of the caches."""
    width = model.config.hidden_size
    weight, row = torch.randn(_WEIGHTS // width, width), torch.randn(1, width)
    ways = [model.beside(weight), model.beside(weight, "int8")]
    rounds = [[_time(way, row) for way in ways] for _ in range(_ROUNDS)]
    plain, quants = map(min, zip(*rounds, strict=True))
    return float(plain / quants)


def _time(matmul: Callable[[Tensor], Tensor], row: Tensor) -> float:
    start = time.perf_counter()
    matmul(row)
    return time.perf_counter() - start
