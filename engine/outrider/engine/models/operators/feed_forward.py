"""The feed-forward block of a layer: one gated block, or experts of which a router picks a few for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from outrider.engine.models.families.family import Activation
from outrider.engine.models.weights import WeightLoader
from outrider.kernels.experts import Experts, pack
from outrider.kernels.geglu import geglu
from outrider.kernels.linear import Linear
from outrider.kernels.swiglu import swiglu
from torch import Tensor

GATES: dict[Activation, Callable[[Tensor], Tensor]] = {"silu": swiglu, "gelu_tanh": geglu}


class FeedForward(Protocol):
    """A layer's second block.

    Attributes:
        dtype: of its rows.
        on_device: whether the host reads nothing of its work, as a CUDA graph demands.
    """

    dtype: torch.dtype
    on_device: bool

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, hidden_size] of rows that are normed."""
        ...


class GatedBlock:
    """Two projections with a gate between them (Shazeer 2020, "GLU variants improve transformer")."""

    on_device = True

    def __init__(self, gate_up: Linear, down: Linear, activation: Activation) -> None:
        self.dtype = gate_up.dtype
        self._gate_up, self._down, self._gated = gate_up, down, GATES[activation]

    def __call__(self, x: Tensor) -> Tensor:
        """See `FeedForward`."""
        return self._down(self._gated(self._gate_up(x)))


class ExpertBlock:
    """Experts, of which a router picks a few for each row.

    Args:
        router: float32 scores of the experts.
        experts: the experts.
    """

    def __init__(self, router: Linear, experts: Experts) -> None:
        self.dtype, self.on_device = experts.dtype, experts.on_device
        self._router, self._experts = router, experts

    def __call__(self, x: Tensor) -> Tensor:
        """See `FeedForward`; float32."""
        return self._experts(x, self._router(x.float()))


def load_feed_forward(loader: WeightLoader[Linear], index: int) -> tuple[Tensor | None, FeedForward]:
    """The norm in front of the block of layer ``index``, None if it is folded, and the block."""
    config, layer = loader.config, f"model.layers.{index}"
    if config.experts is None or not config.has_experts(index):
        block = GatedBlock(loader.gate_up(layer), loader.down(layer), config.activation)
        return loader.feed_forward_norm(layer), block
    names = loader.expert_names(layer)
    router = loader.router(names, config.experts)
    projections = list(loader.experts(names, config.experts))
    experts = pack(projections, config.experts.active, normed=config.experts.normed)
    return loader.feed_forward_norm(layer, folds=False), ExpertBlock(router, experts)
