"""The feed-forward block of a layer: one gated block, or experts of which a router picks a few for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from outrider.engine.models.families.experts import Experts
from outrider.engine.models.families.family import Activation
from outrider.engine.models.weights import WeightLoader
from outrider.kernels.geglu import geglu
from outrider.kernels.linear import Linear
from outrider.kernels.swiglu import swiglu
from torch import Tensor

GATES: dict[Activation, Callable[[Tensor], Tensor]] = {"silu": swiglu, "gelu_tanh": geglu}


class FeedForward(Protocol):
    """A layer's second block.

    Attributes:
        dtype: of its rows.
    """

    dtype: torch.dtype

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, hidden_size] of rows that are normed."""
        ...


class GatedBlock:
    """Two projections with a gate between them (Shazeer 2020, "GLU variants improve transformer")."""

    def __init__(self, gate_up: Linear, down: Linear, activation: Activation) -> None:
        self.dtype = gate_up.dtype
        self._gate_up, self._down, self._gated = gate_up, down, GATES[activation]

    def __call__(self, x: Tensor) -> Tensor:
        """See `FeedForward`."""
        return self._down(self._gated(self._gate_up(x)))


class ExpertBlock:
    """Experts, each of which runs once in a step, over all rows that are routed to it (Shazeer et al. 2017).

    A row's results are added in the order of the experts, and matmuls are chosen so that a row's bits do not depend
    on the others: so neither do the sum's.

    Args:
        experts: how rows are routed.
        router: float32 scores of the experts.
        blocks: the experts.
    """

    def __init__(self, experts: Experts, router: Linear, blocks: Sequence[FeedForward]) -> None:
        self.dtype = blocks[0].dtype
        self._experts, self._router, self._blocks = experts, router, blocks

    def __call__(self, x: Tensor) -> Tensor:
        """See `FeedForward`; float32."""
        total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        chosen, shares = self._route(x)
        for expert, rows, places in _rows_by_expert(chosen, self._experts.count):
            result = self._blocks[expert](x.index_select(0, rows)).float()
            total.index_add_(0, rows, result.mul_(shares.index_select(0, places)))
        return total

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each row [rows, active], best first, and their shares [rows * active, 1]."""
        likely = self._router(x.float()).softmax(-1)
        shares, chosen = (part[:, : self._experts.active] for part in likely.sort(dim=-1, descending=True, stable=True))
        if self._experts.normed:
            shares = shares / shares.cumsum(-1)[:, -1:]
        return chosen, shares.reshape(-1, 1)


def _rows_by_expert(chosen: Tensor, count: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each expert that a row chose: its number, its rows, and their places in ``chosen``, both ascending."""
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    counts = flat.bincount(minlength=count).tolist()
    for expert, places in enumerate(torch.split(order, counts)):
        if len(places):
            yield expert, places // chosen.shape[1], places


def load_feed_forward(loader: WeightLoader[Linear], index: int) -> tuple[Tensor | None, FeedForward]:
    """The norm in front of the block of layer ``index``, None if it is folded, and the block."""
    config, layer = loader.config, f"model.layers.{index}"
    if config.experts is None or not config.has_experts(index):
        block = GatedBlock(loader.gate_up(layer), loader.down(layer), config.activation)
        return loader.feed_forward_norm(layer), block
    names = loader.expert_names(layer)
    router = loader.router(names, config.experts)
    blocks = [GatedBlock(*projections, config.activation) for projections in loader.experts(names, config.experts)]
    return loader.feed_forward_norm(layer, folds=False), ExpertBlock(config.experts, router, blocks)
