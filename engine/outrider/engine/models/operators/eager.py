"""Runs a step of the decoder an operator at a time, on any device of torch or Triton."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.engine.models import rotary
from outrider.engine.models.operators.layer import Layer, StepState
from outrider.engine.models.weights import WeightLoader, rounded
from outrider.kernels.backend import takes_triton
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.invariance import invariant_tiling
from outrider.kernels.linear import Linear
from outrider.kernels.pool import POOL_DTYPES, KvPool
from outrider.kernels.rms_norm import rms_norm
from outrider.kernels.tree_attention import AttentionPlan, plan_attention
from outrider.native.quantized import dequantized
from torch import Tensor


class EagerForward:
    """Runs layer after layer. Keys and values are in float32; Triton kernels take every dtype, first the weights'.

    Attributes:
        hidden_size: width of the residual stream.
        on_device: whether `run` reads nothing from the device, so that a CUDA graph can capture it.
    """

    def __init__(self, loader: WeightLoader[Linear], strict: bool) -> None:
        config = self._config = loader.config
        self._strict, self._dtype, self.hidden_size = strict, loader.dtype, config.hidden_size
        triton = takes_triton(loader.device)
        self.kv_dtypes = tuple(dict.fromkeys((loader.dtype, *POOL_DTYPES))) if triton else (torch.float32,)
        tiled = strict and not triton
        heads = (config.heads, config.kv_heads, config.head_dim)
        self._tiling = invariant_tiling(*heads, windows=any(config.windows)) if tiled else None
        self._eps = torch.tensor(config.norm_eps, device=loader.device)
        embedding = loader.embedding()
        self._embedding = embedding if isinstance(embedding, Tensor) else dequantized(embedding, loader.dtype)
        self._output = loader.output(self._embedding)  # the largest weight: packing takes memory twice
        self._layers = [Layer.load(loader, index, self._eps) for index in range(config.layers)]
        self.on_device = all(layer.feed_forward.on_device for layer in self._layers)
        self._norm = loader.norm("model.norm.weight")
        self._scale = rounded(config.embedding_scale, loader.dtype)
        ropes = [config.rope_of(index) for index in range(config.layers)]
        self._rope_tables = {
            rope: rotary.rope_table(rope, config.head_dim, config.context_length).to(loader.device)
            for rope in set(ropes)
        }
        self._ropes = ropes
        own = config.head_dim**-0.5
        self._query_factor = 1.0 if config.query_scale == own else config.query_scale / own

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        batch: RaggedBatch,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        return self.run(ids, batch.positions, batch.slots, self.plan(batch, pool), pool, layers, states)

    def plan(self, batch: RaggedBatch, pool: KvPool) -> AttentionPlan:
        """The attention plan of a step."""
        config = self._config
        return plan_attention(
            batch,
            pool,
            config.heads,
            self._dtype,
            strict=self._strict,
            tiling=self._tiling,
            windows=config.windows if any(config.windows) else (),
        )

    @torch.inference_mode()
    def run(
        self,
        ids: Tensor,
        positions: Tensor,
        slots: Tensor,
        plan: AttentionPlan,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor:
        """Runs a step with int64 ``positions`` and ``slots`` of rows, where `on_device` without work on the host."""
        scale = plan.scale * self._query_factor
        rotations = {rope: table.index_select(0, positions) for rope, table in self._rope_tables.items()}
        steps = {rope: StepState(plan, pool, slots, rows, rows * scale) for rope, rows in rotations.items()}
        x, delta = self.embed(ids), None
        for index, (layer, rope) in enumerate(zip(self._layers, self._ropes, strict=True)):
            _keep(states, layers, index, x, delta)
            delta = layer(x, delta, steps[rope], index)
        _keep(states, layers, len(self._layers), x, delta)
        hidden = rms_norm(x, self._norm, self._eps, add=delta)
        _keep(states, layers, len(self._layers) + 1, hidden, None)
        return hidden

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        x = self._embedding.index_select(0, ids).float()
        return x if self._scale == 1 else x.mul_(self._scale)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """See `outrider.engine.models.llama.Forward`."""
        return self._output(hidden.to(self._dtype)).float()


def _keep(states: Tensor | None, layers: Sequence[int], layer: int, x: Tensor, delta: Tensor | None) -> None:
    """Copies what enters ``layer``, ``x`` and the ``delta`` that is yet to be added, if ``layers`` ask for it."""
    if states is not None and layer in layers:
        states[:, layers.index(layer)] = x if delta is None else x + delta
