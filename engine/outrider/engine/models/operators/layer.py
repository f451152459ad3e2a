"""One layer of the decoder: attention, then the feed-forward block, each added to the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from outrider.engine.models.operators.feed_forward import FeedForward, load_feed_forward
from outrider.engine.models.weights import WeightLoader
from outrider.kernels.linear import Linear
from outrider.kernels.pool import KvPool
from outrider.kernels.rms_norm import rms_norm
from outrider.kernels.rope_kv_write import rope_kv_write
from outrider.kernels.tree_attention import AttentionPlan
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepState:
    """Inputs that all layers of a step with the same rotary positions share.

    Attributes:
        plan: attention plan.
        pool: keys and values.
        slots: int64 [rows], places of the rows' keys and values.
        key_rope: complex64 [rows, 1, head_dim / 2], rotations of the keys.
        query_rope: rotations of the queries, times the attention's scale.
    """

    plan: AttentionPlan
    pool: KvPool
    slots: Tensor
    key_rope: Tensor
    query_rope: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of a layer; a norm that is folded into the next projection, or that the family does not have, is None."""

    attention_norm: Tensor | None
    qkv: Linear
    head_norm: Tensor | None
    key_balance: Tensor | None
    output: Linear
    after_attention: Tensor | None
    feed_forward_norm: Tensor | None
    feed_forward: FeedForward
    after_feed_forward: Tensor | None
    eps: Tensor

    @classmethod
    def load(cls, loader: WeightLoader[Linear], index: int, eps: Tensor) -> Layer:
        """The weights of layer ``index``."""
        name = f"model.layers.{index}"
        after_attention, after_feed_forward = loader.norms_after(name)
        feed_forward_norm, feed_forward = load_feed_forward(loader, index)
        return cls(
            loader.attention_norm(name),
            loader.qkv(name),
            loader.head_norm(name),
            loader.key_balance(name),
            loader.attention_output(name),
            after_attention,
            feed_forward_norm,
            feed_forward,
            after_feed_forward,
            eps,
        )

    def __call__(self, x: Tensor, delta: Tensor | None, step: StepState, index: int) -> Tensor:
        """Runs the layer.

        Args:
            x: float32 [rows, hidden_size], the residual stream; changed in place.
            delta: [rows, hidden_size], output of the layer before; added to ``x`` here.
            step: state of the step.
            index: number of this layer.

        Returns:
            [rows, hidden_size], which the next layer or norm adds to ``x``.
        """
        qkv = self.qkv(rms_norm(x, self.attention_norm, self.eps, add=delta, dtype=self.qkv.dtype))
        rope_kv_write(
            qkv,
            step.key_rope,
            step.query_rope,
            step.plan.queries,
            step.pool,
            index,
            step.slots,
            head_norm=self.head_norm,
            eps=self.eps,
            balance=self.key_balance,
        )
        attended = self._after(self.output(step.plan.attend(index)), self.after_attention)
        normed = rms_norm(x, self.feed_forward_norm, self.eps, add=attended, dtype=self.feed_forward.dtype)
        return self._after(self.feed_forward(normed), self.after_feed_forward)

    def _after(self, result: Tensor, norm: Tensor | None) -> Tensor:
        """A block's result, normed in families that do."""
        return result if norm is None else rms_norm(result, norm, self.eps, dtype=torch.float32)
