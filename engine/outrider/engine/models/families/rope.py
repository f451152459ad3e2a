"""Rotary positions as a configuration states them, in the newer layout and in the older."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from outrider.engine.models.fields import Fields

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_NESTED = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary frequencies.

    Attributes:
        theta: base of the geometric series of wavelengths.
        kind: ``default``, ``linear`` (positions divided by ``factor``), ``llama3`` (long wavelengths divided by it) or
            ``yarn`` (the same with a ramp over the pairs; Peng et al. 2023, "YaRN").
        factor: divisor of all kinds but ``default``.
        low_frequency_factor: ``llama3`` divides wavelengths above original_length / this.
        high_frequency_factor: ``llama3`` keeps wavelengths below original_length / this.
        original_length: context length of the first training, for ``llama3`` and ``yarn``.
        attention_factor: ``yarn`` multiplies rotated queries and keys by this.
        beta_fast: rotations within the original length from which on ``yarn`` keeps a wavelength.
        beta_slow: rotations within the original length up to which ``yarn`` divides by the whole factor.
        truncate: whether ``yarn``'s ramp begins and ends at whole pairs.
        share: share of a head's elements that are rotated, from the first on; the others stay as they are.
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: int = 8192
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    share: float = 1.0

    def rotated(self, head_dim: int) -> int:
        """How many elements of a head of ``head_dim`` are rotated."""
        return int(head_dim * self.share)


def read_ropes(fields: Fields, head_dim: int, theta: float, local_theta: float | None) -> tuple[RopeConfig, RopeConfig]:
    """The rotary positions of layers that see everything, and of layers with a sliding window.

    Args:
        fields: of the configuration.
        head_dim: elements of a head.
        theta: base if none is given.
        local_theta: base of layers with a window if none is given; None where those have no positions of their own.

    Raises:
        ModelError: a field is missing, wrong or not supported.
    """
    parameters = fields.within("rope_parameters")
    nested = parameters is not None and any(isinstance(parameters.values.get(name), dict) for name in _NESTED)
    if nested and parameters is not None:
        wide, near = (parameters.within(name) for name in _NESTED)
    else:
        wide, near = parameters or fields.within("rope_scaling"), None
    rope = _rope(fields, wide, fields.positive("rope_theta", theta), head_dim)
    if local_theta is None and near is None:
        return rope, rope
    local = _rope(fields, near, fields.positive("rope_local_base_freq", local_theta or theta), head_dim)
    if local.share != rope.share:
        raise (near or fields).wrong("partial_rotary_factor", "that of the other layers")
    return rope, local


def _rope(fields: Fields, scaling: Fields | None, theta: float, head_dim: int) -> RopeConfig:
    rope = RopeConfig(theta) if scaling is None else _scaled(scaling, scaling.positive("rope_theta", theta), fields)
    for where in (scaling, fields):
        if where is not None and where.values.get("partial_rotary_factor") is not None:
            return replace(rope, share=_share(where, head_dim))
    return rope


def _share(fields: Fields, head_dim: int) -> float:
    share = fields.positive("partial_rotary_factor")
    if share > 1 or int(head_dim * share) % 2 or int(head_dim * share) < 2:
        raise fields.wrong("partial_rotary_factor", f"at most 1, and an even share of head_dim, which is {head_dim}")
    return share


def _scaled(scaling: Fields, theta: float, fields: Fields) -> RopeConfig:
    name = "rope_type" if scaling.values.get("rope_type") is not None else "type"
    kind = scaling.text(name, "default")
    if kind not in ROPE_TYPES:
        raise scaling.wrong(name, "one of " + ", ".join(ROPE_TYPES))
    if kind == "default":
        return RopeConfig(theta)
    if kind == "linear":
        return RopeConfig(theta, kind, scaling.positive("factor"))
    if kind == "yarn":
        return _yarn(scaling, theta, fields.count("max_position_embeddings"), _original_length(scaling, fields))
    return RopeConfig(
        theta,
        kind,
        scaling.positive("factor"),
        scaling.positive("low_freq_factor"),
        scaling.positive("high_freq_factor"),
        _original_length(scaling, fields),
    )


def _original_length(scaling: Fields, fields: Fields) -> int:
    """The length of the first training; a configuration's own field overrides that of its scaling (transformers)."""
    name = "original_max_position_embeddings"
    return fields.count(name, scaling.count(name, fields.count("max_position_embeddings")))


def _yarn(scaling: Fields, theta: float, length: int, original: int) -> RopeConfig:
    factor = scaling.positive("factor", length / original)
    return RopeConfig(
        theta,
        "yarn",
        factor,
        original_length=original,
        attention_factor=scaling.positive("attention_factor", _attention_factor(scaling, factor)),
        beta_fast=scaling.positive("beta_fast", 32.0),
        beta_slow=scaling.positive("beta_slow", 1.0),
        truncate=scaling.flag("truncate", True),
    )


def _attention_factor(scaling: Fields, factor: float) -> float:
    """YaRN's factor where none is stated: ``0.1 ln(factor) + 1``, or the ratio of two such with weights (DeepSeek)."""

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    weights = [scaling.values.get(name) for name in ("mscale", "mscale_all_dim")]
    if all(weights):
        return scale(scaling.positive("mscale")) / scale(scaling.positive("mscale_all_dim"))
    return scale(1.0)
