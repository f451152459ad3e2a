"""Loads weights for the layers: joined, reordered, with norms folded in, and packed."""

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
    """Takes weights from a checkpoint by their Hugging Face names.

    Folds a norm's weight into the columns of the next product if the product is in float32. In 16 bits, folding would
    round the product's weights once more, so the norm keeps its weight.

    Attributes:
        config: configuration of the model.
        dtype: dtype of the loaded weights.
        device: device of the loaded weights.

    Args:
        make: makes a product from a weight [out_features, in_features], a bias, and whether a layer owns the product.
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
        """The embedding, [vocab_size, hidden_size] in ``dtype``."""
        shape = (self.config.vocab_size, self.config.hidden_size)
        return self._take("model.embed_tokens.weight", *shape).to(self.device, self.dtype, copy=True)

    def norm(self, name: str) -> Tensor:
        """The weight of a norm, float32 [hidden_size]."""
        return self._take(name, self.config.hidden_size).to(self.device, torch.float32)

    def layer_norm(self, name: str) -> Tensor | None:
        """The weight of a norm inside a layer, float32 [hidden_size]; None if folded into the next product."""
        return None if self._folds else self.norm(name)

    def qkv(self, layer: str) -> P:
        """The product of queries, keys and values of all heads."""
        config = self.config
        parts = (("q", config.heads, True), ("k", config.kv_heads, True), ("v", config.kv_heads, False))
        weights, biases = [], []
        for part, heads, turned in parts:
            name, rows = f"{layer}.self_attn.{part}_proj", heads * config.head_dim
            tensors = [self._take(f"{name}.weight", rows, config.hidden_size)]
            if config.attention_bias:
                tensors.append(self._take(f"{name}.bias", rows))
            ordered = [interleave(tensor, config.head_dim) if turned else tensor for tensor in tensors]
            weights.append(ordered[0])
            biases += ordered[1:]
        norm = f"{layer}.input_layernorm.weight"
        return self._pack(torch.cat(weights), torch.cat(biases) if biases else None, norm)

    def head_norm(self, layer: str) -> Tensor | None:
        """Norm weights of queries and keys, float32 [heads + kv_heads, head_dim]; None without such norms."""
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
        """The product from the heads to the hidden size."""
        config = self.config
        shape = (config.hidden_size, config.heads * config.head_dim)
        return self._pack(*self._product(f"{layer}.self_attn.o_proj", *shape, bias=config.output_bias))

    def gate_up(self, layer: str) -> P:
        """The joined gate and up product of the feed-forward block."""
        config = self.config
        shape, biased = (config.intermediate_size, config.hidden_size), config.feed_forward_bias
        gate, gate_bias = self._product(f"{layer}.mlp.gate_proj", *shape, bias=biased)
        up, up_bias = self._product(f"{layer}.mlp.up_proj", *shape, bias=biased)
        bias = torch.cat([gate_bias, up_bias]) if gate_bias is not None and up_bias is not None else None
        return self._pack(torch.cat([gate, up]), bias, f"{layer}.post_attention_layernorm.weight")

    def down(self, layer: str) -> P:
        """The product from the feed-forward block to the hidden size."""
        config = self.config
        shape = (config.hidden_size, config.intermediate_size)
        return self._pack(*self._product(f"{layer}.mlp.down_proj", *shape, bias=config.feed_forward_bias))

    def output(self, embedding: Tensor) -> P:
        """The product from the hidden size to the vocabulary; tied models use the embedding as its weight."""
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
    """Makes products for steps that run an operator at a time.

    Attributes:
        quantization: quantization of the layers' products.
    """

    def __init__(self, strict: bool, quantization: Quantization | None) -> None:
        self.quantization = quantization
        self._strict = strict
        self._row_ranges: dict[tuple[int, int, Quantization | None], RowRange] = {}

    def __call__(self, weight: Tensor, bias: Tensor | None, inner: bool) -> Linear:
        """The fastest form of a product; in strict mode, among forms whose rows do not depend on each other."""
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
