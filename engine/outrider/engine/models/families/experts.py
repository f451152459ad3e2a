"""Mixtures of experts: feed-forward blocks of which a router picks a few for each row (Shazeer et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outrider.engine.models.fields import Fields


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of a layer.

    Attributes:
        count: experts of a layer.
        active: experts that each row goes through.
        intermediate_size: width between the two halves of an expert.
        normed: whether the weights of a row's experts are divided by their sum.
        layers: whether each layer has experts; the others have one feed-forward block.
    """

    count: int
    active: int
    intermediate_size: int
    normed: bool
    layers: tuple[bool, ...]


ReadExperts = Callable[[Fields, int], Experts | None]
"""Reads the experts of a model of so many layers; None where it has none."""


def no_experts(fields: Fields, layers: int) -> Experts | None:
    """Of a family without experts."""
    return None


def mixtral_experts(fields: Fields, layers: int) -> Experts | None:
    """Experts in every layer, with weights that sum to one (Jiang et al. 2024, "Mixtral of experts")."""
    count = fields.count("num_local_experts", 8)
    return Experts(count, _active(fields, 2, count), fields.count("intermediate_size"), True, (True,) * layers)


def qwen_experts(fields: Fields, layers: int) -> Experts | None:
    """Experts in every ``decoder_sparse_step``-th layer that is not one of ``mlp_only_layers``."""
    name = "num_local_experts" if fields.values.get("num_experts") is None else "num_experts"
    count, step = fields.count(name, 128), fields.count("decoder_sparse_step", 1)
    plain = _indices(fields, "mlp_only_layers")
    sparse = tuple(index not in plain and (index + 1) % step == 0 for index in range(layers))
    width, normed = fields.count("moe_intermediate_size", 768), fields.flag("norm_topk_prob", False)
    return Experts(count, _active(fields, 8, count), width, normed, sparse) if any(sparse) else None


def _active(fields: Fields, default: int, count: int) -> int:
    active = fields.count("num_experts_per_tok", default)
    if active > count:
        raise fields.wrong("num_experts_per_tok", f"at most the number of experts, which is {count}")
    return active


def _indices(fields: Fields, name: str) -> list[Any]:
    listed = fields.values.get(name) or []
    if not isinstance(listed, list) or any(not isinstance(item, int) or isinstance(item, bool) for item in listed):
        raise fields.wrong(name, "a list of whole numbers")
    return listed
