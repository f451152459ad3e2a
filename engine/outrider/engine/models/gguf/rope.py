"""Rotary positions in a file's metadata, as Hugging Face's ``rope_parameters``."""

from __future__ import annotations

import math
from array import array
from typing import Any

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.header import GgufFile

FACTORS = "rope_freqs.weight"
"""The tensor of Llama 3.1's scaling: for each frequency the number that divides it."""
_KINDS = ("none", "linear", "yarn")
_LOW, _HIGH = 1.0, 4.0
_TOLERANCE = 1e-4


def rope_parameters(file: GgufFile, architecture: str, head_dim: int, default_theta: float) -> dict[str, Any]:
    """The scaling of positions.

    Raises:
        ModelError: a key has a value that is not supported, or the tensor `FACTORS` is not of Llama 3.1's scaling.
    """
    theta = file.metadata.positive(f"{architecture}.rope.freq_base", default_theta)
    scaling = _scaling(file, architecture)
    if FACTORS in file.tensors:
        scaling = _llama3(file, theta, head_dim)
    return {"rope_theta": theta, **scaling}


def _scaling(file: GgufFile, architecture: str) -> dict[str, Any]:
    metadata, prefix = file.metadata, f"{architecture}.rope.scaling"
    old = f"{architecture}.rope.scale_linear"
    kind = metadata.text(f"{prefix}.type", "linear" if old in metadata else "none")
    if kind not in _KINDS:
        raise metadata.wrong(f"{prefix}.type", "one of " + ", ".join(_KINDS))
    if kind == "none":
        return {"rope_type": "default"}
    factor = metadata.positive(f"{prefix}.factor" if f"{prefix}.factor" in metadata or kind == "yarn" else old)
    return {"rope_type": "linear", "factor": factor} if kind == "linear" else _yarn(file, prefix, factor)


def _yarn(file: GgufFile, prefix: str, factor: float) -> dict[str, Any]:
    """YaRN's parameters. ggml's attention factor multiplies the usual one, 1 + 0.1 ln(factor)."""
    metadata = file.metadata
    parameters = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": metadata.count(f"{prefix}.original_context_length"),
    }
    for ending, name in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        if f"{prefix}.{ending}" in metadata:
            parameters[name] = metadata.positive(f"{prefix}.{ending}")
    for key in (f"{prefix}.yarn_attn_factor", f"{prefix}.attn_factor"):
        if key in metadata and (share := metadata.positive(key)) != 1.0:
            parameters["attention_factor"] = share * (1 + 0.1 * math.log(factor))
    return parameters


def _llama3(file: GgufFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters that give the factors: the file has the factors only.

    Llama 3.1 and its successors have 1 and 4 as the bounds, and a first training length that is a power of two.
    """
    factors = _factors(file, head_dim // 2)
    factor = max(factors)
    if not all(1 - _TOLERANCE <= number < math.inf for number in factors):
        raise _not_llama3(file)
    for original in (1 << power for power in range(5, 21)):
        expected = _llama3_factors(theta, head_dim, factor, original)
        if all(abs(a - b) <= _TOLERANCE * b for a, b in zip(factors, expected, strict=True)):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": _LOW,
                "high_freq_factor": _HIGH,
                "original_max_position_embeddings": original,
            }
    raise _not_llama3(file)


def _not_llama3(file: GgufFile) -> ModelError:
    return ModelError(f"{file.path}: {FACTORS} holds other factors than Llama 3.1's scaling, the only one allowed")


def _factors(file: GgufFile, count: int) -> array[float]:
    place = file.tensors[FACTORS]
    if place.type.name != "F32" or place.shape != (count,):
        raise ModelError(
            f"{file.path}: {FACTORS} has shape {list(place.shape)} and type {place.type.name}; "
            f"it must be [{count}] and F32"
        )
    return array("f", file.data[place.start : place.start + place.size])


def _llama3_factors(theta: float, head_dim: int, factor: float, original: int) -> list[float]:
    frequencies = (theta ** -(2 * pair / head_dim) for pair in range(head_dim // 2))
    return [_llama3_factor(2 * math.pi / frequency, factor, original) for frequency in frequencies]


def _llama3_factor(wavelength: float, factor: float, original: int) -> float:
    share = (original / wavelength - _LOW) / (_HIGH - _LOW)
    return 1 / (min(max(share, 0.0), 1.0) * (1 - 1 / factor) + 1 / factor)
