"""Weights in the form that the layers run: joined, reordered, with norms folded in, and packed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import torch
from outrider.kernels.backend import takes_triton
from outrider.kernels.invariance import InvariantLinear, RowRange, row_range
from outrider.kernels.linear import Linear, Quantization, pack
from outrider.models.checkpoint import Checkpoint
from outrider.models.config import ModelConfig
from outrider.models.errors import ModelError
from outrider.models.rotary import interleave
from torch import Tensor

P = TypeVar("P")


class WeightLoader(Generic[P]):
    """Takes weights from a checkpoint under the names that Hugging Face gives them.

    A norm's weight is folded into the columns of the product behind it where that is in float32. In 16 bits it would
    round the products' weights once more, so there the norm keeps it.

    Attributes:
        config: of the model.
        dtype: of the weights it makes.
        device: where they go.

    Args:
        make: a product of a weight [out_features, in_features], a bias, and whether it is one of a layer's.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        make: Callable[[Tensor, Tensor | None, bool], P],
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self._checkpoint = checkpoint
        self._make = make
        self._folds = dtype == torch.float32

    def embedding(self) -> Tensor:
        """[vocab_size, hidden_size], in ``dtype``."""
        shape = (self.config.vocab_size, self.config.hidden_size)
        return self._take("model.embed_tokens.weight", *shape).to(self.device, self.dtype, copy=True)

    def norm(self, name: str) -> Tensor:
        """Float32 [hidden_size]."""
        return self._take(name, self.config.hidden_size).to(self.device, torch.float32)

    def layer_norm(self, name: str) -> Tensor | None:
        """A norm inside a layer: float32 [hidden_size], None where it is folded into the next product."""
        return None if self._folds else self.norm(name)

    def qkv(self, layer: str) -> P:
        """Queries, keys and values of all heads in one product."""
        config = self.config
        parts = (("q", config.heads, True), ("k", config.kv_heads, True), ("v", config.kv_heads, False))
        weights, biases = [], []
        for part, heads, turned in parts:
            name, rows = f"{layer}.self_attn.{part}_proj", heads * config.head_dim
            taken = [self._take(f"{name}.weight", rows, config.hidden_size)]
            if config.attention_bias:
                taken.append(self._take(f"{name}.bias", rows))
            ordered = [interleave(tensor, config.head_dim) if turned else tensor for tensor in taken]
            weights.append(ordered[0])
            biases += ordered[1:]
        norm = f"{layer}.input_layernorm.weight"
        return self._pack(torch.cat(weights), torch.cat(biases) if biases else None, norm)

    def head_norm(self, layer: str) -> Tensor | None:
        """Float32 [heads + kv_heads, head_dim] of queries and keys; None where they are not normed."""
        config = self.config
        if not config.query_key_norm:
            return None
        rows = [
            interleave(self._take(f"{layer}.self_attn.{part}_norm.weight", config.head_dim), config.head_dim)
            .expand(heads, -1)
            .float()
            for part, heads in (("q", config.heads), ("k", config.kv_heads))
        ]
        return torch.cat(rows).to(self.device)

    def attention_output(self, layer: str) -> P:
        """From the heads back to the hidden size."""
        config = self.config
        shape = (config.hidden_size, config.heads * config.head_dim)
        return self._pack(*self._product(f"{layer}.self_attn.o_proj", *shape, bias=config.output_bias))

    def gate_up(self, layer: str) -> P:
        """The gate and the up product of the feed-forward block in one."""
        config = self.config
        shape, biased = (config.intermediate_size, config.hidden_size), config.feed_forward_bias
        gate, gate_bias = self._product(f"{layer}.mlp.gate_proj", *shape, bias=biased)
        up, up_bias = self._product(f"{layer}.mlp.up_proj", *shape, bias=biased)
        bias = torch.cat([gate_bias, up_bias]) if gate_bias is not None and up_bias is not None else None
        return self._pack(torch.cat([gate, up]), bias, f"{layer}.post_attention_layernorm.weight")

    def down(self, layer: str) -> P:
        """From the feed-forward block back to the hidden size."""
        config = self.config
        shape = (config.hidden_size, config.intermediate_size)
        return self._pack(*self._product(f"{layer}.mlp.down_proj", *shape, bias=config.feed_forward_bias))

    def output(self, embedding: Tensor) -> P:
        """From the hidden size to the vocabulary; its weight is the embedding's where they are tied."""
        shape = (self.config.vocab_size, self.config.hidden_size)
        weight = embedding if self.config.tie else self._take("lm_head.weight", *shape)
        return self._placed(weight, None, False)

    def _take(self, name: str, *shape: int) -> Tensor:
        return self._checkpoint.take(name, shape)

    def _product(self, name: str, out: int, inner: int, *, bias: bool) -> tuple[Tensor, Tensor | None]:
        return self._take(f"{name}.weight", out, inner), self._take(f"{name}.bias", out) if bias else None

    def _pack(self, weight: Tensor, bias: Tensor | None, norm: str | None = None) -> P:
        if norm is not None and self._folds:
            weight = weight.float() * self._take(norm, self.config.hidden_size).float()
        return self._placed(weight, bias, True)

    def _placed(self, weight: Tensor, bias: Tensor | None, inner: bool) -> P:
        weight = weight.to(self.device, self.dtype).contiguous()
        return self._make(weight, None if bias is None else bias.to(self.device, self.dtype), inner)


class Packer:
    """Makes the products that run an operator at a time.

    Attributes:
        quantization: of the layers' products.
    """

    def __init__(self, strict: bool, quantization: Quantization | None) -> None:
        self.quantization = quantization
        self._strict = strict
        self._row_ranges: dict[tuple[int, int, Quantization | None], RowRange] = {}

    def __call__(self, weight: Tensor, bias: Tensor | None, inner: bool) -> Linear:
        """The quickest form of a product, in strict mode of those whose rows depend on themselves alone."""
        quantization = self.quantization if inner else None
        try:
            linear = pack(weight, bias, few_rows=not self._strict, quantization=quantization)
        except ValueError as error:
            raise ModelError(str(error)) from None
        if not self._strict or takes_triton(weight.device):
            return linear
        return self._invariant(linear, weight.dtype, quantization)

    def _invariant(self, linear: Linear, dtype: torch.dtype, quantization: Quantization | None) -> Linear:
        shape = (linear.in_features, linear.out_features, quantization)
        if shape not in self._row_ranges:
            self._row_ranges[shape] = row_range(*shape[:2], dtype, partial(pack, quantization=quantization))
        return InvariantLinear(linear, self._row_ranges[shape])
