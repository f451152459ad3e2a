"""One layer of the decoder: attention, then the feed-forward block, each added to the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.kernels.linear import Linear
from outrider.kernels.pool import KvPool
from outrider.kernels.rms_norm import rms_norm
from outrider.kernels.rope_kv_write import rope_kv_write
from outrider.kernels.swiglu import swiglu
from outrider.kernels.tree_attention import AttentionPlan
from outrider.models.weights import WeightLoader
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepState:
    """Inputs that all layers of a step share.

    Attributes:
        plan: attention plan.
        pool: keys and values.
        slots: int64 [rows], places of the rows' keys and values.
        turns: complex64 [rows, 1, head_dim / 2], rotations of the keys.
        query_turns: rotations of the queries, times the attention's scale.
    """

    plan: AttentionPlan
    pool: KvPool
    slots: Tensor
    turns: Tensor
    query_turns: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of a layer; a norm that is folded into the next product is None."""

    attention_norm: Tensor | None
    qkv: Linear
    head_norm: Tensor | None
    output: Linear
    feed_forward_norm: Tensor | None
    gate_up: Linear
    down: Linear
    eps: Tensor

    @classmethod
    def load(cls, loader: WeightLoader[Linear], index: int, eps: Tensor) -> Layer:
        """The weights of layer ``index``."""
        name = f"model.layers.{index}"
        return cls(
            loader.layer_norm(f"{name}.input_layernorm.weight"),
            loader.qkv(name),
            loader.head_norm(name),
            loader.attention_output(name),
            loader.layer_norm(f"{name}.post_attention_layernorm.weight"),
            loader.gate_up(name),
            loader.down(name),
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
            step.turns,
            step.query_turns,
            step.plan.queries,
            step.pool,
            index,
            step.slots,
            head_norm=self.head_norm,
            eps=self.eps,
        )
        attended = self.output(step.plan.attend(index))
        normed = rms_norm(x, self.feed_forward_norm, self.eps, add=attended, dtype=self.gate_up.dtype)
        return self.down(swiglu(self.gate_up(normed)))
