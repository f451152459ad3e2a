"""Loads weights for the layers: joined, reordered, with norms folded in, and packed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import WeightSource
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.families.experts import Experts
from outrider.engine.models.operators.expert_weights import ExpertNames, expert_weights
from outrider.engine.models.operators.quantized_linear import quantized_linear
from outrider.engine.models.rotary import interleave
from outrider.engine.pages.key_balance import key_balance, key_sizes
from outrider.kernels.backend import takes_triton
from outrider.kernels.invariance import InvariantLinear, RowRange, row_range
from outrider.kernels.linear import Linear, Quantization, pack
from outrider.native.quantized import QuantFormat, QuantizedWeight, Reordered, dequantized
from outrider.native.weights import Part
from torch import Tensor

P = TypeVar("P", covariant=True)
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


class Maker(Protocol[P]):
    """Makes a projection."""

    def __call__(self, parts: Sequence[Part], inner: bool) -> P:
        """The projection of ``parts``, whose results stand side by side; ``inner`` where a layer owns it."""
        ...


class WeightLoader(Generic[P]):
    """Takes weights from a checkpoint by their Hugging Face names.

    Folds a norm's weight into the columns of the next projection if that is in float32. In fewer bits, folding would
    round the projection's weights once more, so the norm keeps its weight.

    Attributes:
        config: configuration of the model.
        dtype: dtype of the loaded weights, except quantized ones.
        device: device of the loaded weights.

    Args:
        make: makes a projection.
        quantized: whether the checkpoint has quantized weights.
        balances: whether `key_balance` evens out keys.
        guesses: whether `output` is made as the projections of layers are, which may be quantized.
        vocabulary: the tokens whose logits `output` computes.
        ending: makes the projections that end a block; None for ``make``.
    """

    def __init__(
        self,
        checkpoint: WeightSource,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        make: Maker[P],
        *,
        quantized: bool = False,
        balances: bool = False,
        guesses: bool = False,
        vocabulary: slice = slice(None),
        ending: Maker[P] | None = None,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self._checkpoint = checkpoint
        self._make, self._guesses = make, guesses
        self._vocabulary, self._ending = vocabulary, ending or make
        self._folds, self._balances = dtype == torch.float32 and not quantized, balances

    def embedding(self) -> Tensor | QuantizedWeight:
        """The embedding, [vocab_size, hidden_size] in ``dtype`` or quantized."""
        name = _OUTPUT if self.config.tie and not self._checkpoint.has(_EMBEDDING) else _EMBEDDING
        table = self._take(name, self.config.vocab_size, self.config.hidden_size)
        return table.to(self.device, self.dtype, copy=True) if isinstance(table, Tensor) else table

    def norm(self, name: str) -> Tensor:
        """The weight of a norm, with the family's offset: float32 [hidden_size]."""
        return self._norm(name, self.config.hidden_size).to(self.device)

    def attention_norm(self, layer: str) -> Tensor | None:
        """The weight of the norm before attention, float32 [hidden_size]; None if folded into the next projection."""
        return None if self._folds else self.norm(_attention_norm(layer))

    def feed_forward_norm(self, layer: str, *, folds: bool = True) -> Tensor | None:
        """The weight of the norm before the feed-forward block; None if ``folds`` and it is folded into `gate_up`."""
        return None if self._folds and folds else self.norm(self._feed_forward_norm(layer))

    def norms_after(self, layer: str) -> tuple[Tensor | None, Tensor | None]:
        """The weights of the norms behind attention and the feed-forward block; None in families without."""
        if not self.config.norms_after:
            return None, None
        attention, feed_forward = (f"{layer}.post_{block}_layernorm.weight" for block in ("attention", "feedforward"))
        return self.norm(attention), self.norm(feed_forward)

    def qkv(self, layer: str) -> P:
        """The projection of queries, keys and values of all heads."""
        config = self.config
        parts = []
        for name, heads, rotated in (
            ("q", config.heads, True),
            ("k", config.kv_heads, True),
            ("v", config.kv_heads, False),
        ):
            rows = heads * config.head_dim
            part = self._part(f"{layer}.self_attn.{name}_proj", rows, config.hidden_size, bias=config.attention_bias)
            parts.append(self._rotated(part) if rotated else part)
        return self._projection(parts, _attention_norm(layer))

    def head_norm(self, layer: str) -> Tensor | None:
        """Norm weights of queries and keys, float32 [heads + kv_heads, head_dim]; None without such norms."""
        config = self.config
        if not config.query_key_norm:
            return None
        rows = [
            self._interleaved(self._norm(f"{layer}.self_attn.{part}_norm.weight", config.head_dim)).expand(heads, -1)
            for part, heads in (("q", config.heads), ("k", config.kv_heads))
        ]
        return torch.cat(rows).to(self.device)

    def key_balance(self, layer: str) -> Tensor | None:
        """Factors of queries and keys, float32 [heads + kv_heads, head_dim]; None unless keys are evened out."""
        config = self.config
        if not self._balances:
            return None
        if (norm := self.head_norm(layer)) is not None:
            return key_balance(norm[config.heads :].cpu().abs(), config.heads).to(self.device)
        rows, bias = config.kv_heads * config.head_dim, config.attention_bias
        part = self._rotated(self._part(f"{layer}.self_attn.k_proj", rows, config.hidden_size, bias=bias))
        sizes = key_sizes(_dense(part.weight).float() * self.norm(_attention_norm(layer)).cpu(), part.bias)
        return key_balance(sizes.view(config.kv_heads, -1), config.heads).to(self.device)

    def attention_output(self, layer: str) -> P:
        """The projection from the heads to the hidden size."""
        config = self.config
        shape = (config.hidden_size, config.heads * config.head_dim)
        return self._block_end(self._part(f"{layer}.self_attn.o_proj", *shape, bias=config.output_bias))

    def gate_up(self, layer: str) -> P:
        """The joined gate and up projection of the feed-forward block."""
        config = self.config
        shape, biased = (config.intermediate_size, config.hidden_size), config.feed_forward_bias
        parts = [self._part(f"{layer}.mlp.{name}_proj", *shape, bias=biased) for name in ("gate", "up")]
        return self._projection(parts, self._feed_forward_norm(layer))

    def down(self, layer: str) -> P:
        """The projection from the feed-forward block to the hidden size."""
        config = self.config
        shape = (config.hidden_size, config.intermediate_size)
        return self._block_end(self._part(f"{layer}.mlp.down_proj", *shape, bias=config.feed_forward_bias))

    def router(self, names: ExpertNames, experts: Experts) -> P:
        """The projection from the hidden size to the experts' scores, in float32."""
        weight = self._take(names.router, experts.count, self.config.hidden_size)
        return self._make([Part(_dense(weight).to(self.device, torch.float32))], False)

    def experts(self, names: ExpertNames, experts: Experts) -> Iterator[tuple[P, P]]:
        """The joined gate and up projection of each expert, and its down projection."""
        for gate, up, down in expert_weights(names, self._checkpoint, experts, self.config.hidden_size):
            yield self._projection([Part(gate), Part(up)]), self._projection([Part(down)])

    def expert_names(self, layer: str) -> ExpertNames:
        """The names of the tensors of a layer's experts."""
        return ExpertNames.of(layer, self._checkpoint)

    def output(self, embedding: Tensor | QuantizedWeight) -> P:
        """The projection from the hidden size to the vocabulary; the embedding if the model is tied and has no other.

        Some configurations say that a model is tied though its checkpoint has another output layer: the checkpoint is
        right. An equal one is the embedding once more, which takes no memory of its own. A model that only embeds has
        none, whatever its configuration says.
        """
        part = self._placed(Part(embedding[self._vocabulary] if isinstance(embedding, Tensor) else embedding))
        if _output_name(self._checkpoint, self.config) == _OUTPUT:
            own = self._placed(Part(output_weight(self._checkpoint, self.config)))
            part = part if _equal(own.weight, part.weight) else own
        return self._make([part], self._guesses)

    def _take(self, name: str, *shape: int) -> Tensor | QuantizedWeight:
        return self._checkpoint.take(name, shape)

    def _norm(self, name: str, size: int) -> Tensor:
        return self._vector(name, size).float() + self.config.norm_offset

    def _feed_forward_norm(self, layer: str) -> str:
        before = "pre_feedforward" if self.config.norms_after else "post_attention"
        return f"{layer}.{before}_layernorm.weight"

    def _interleaved(self, rows: Tensor) -> Tensor:
        return interleave(rows, self.config.head_dim, self.config.rope.rotated(self.config.head_dim))

    def _vector(self, name: str, size: int) -> Tensor:
        vector = self._take(name, size)
        if not isinstance(vector, Tensor):
            raise ModelError(f"{name} is quantized; a vector must be in 16 or 32 bits")
        return vector

    def _part(self, name: str, out: int, inner: int, *, bias: bool) -> Part:
        return Part(self._take(f"{name}.weight", out, inner), self._vector(f"{name}.bias", out) if bias else None)

    def _rotated(self, part: Part) -> Part:
        """The part with its output features in the order that rotations need."""
        order = self._interleaved(torch.arange(part.weight.shape[0]))
        weight = part.weight[order] if isinstance(part.weight, Tensor) else Reordered(part.weight, order)
        return Part(weight, None if part.bias is None else part.bias[order])

    def _projection(self, parts: list[Part], norm: str | None = None) -> P:
        if norm is not None and self._folds:
            by = self._norm(norm, self.config.hidden_size)
            parts = [Part(_dense(part.weight).float() * by, part.bias) for part in parts]
        return self._make(_joined([self._placed(part) for part in parts]), True)

    def _block_end(self, part: Part) -> P:
        return self._ending([self._placed(part)], True)

    def _placed(self, part: Part) -> Part:
        weight = part.weight
        if not isinstance(weight, Tensor) and weight.format.floats and not takes_triton(self.device):
            weight = dequantized(weight, self.dtype)
        if isinstance(weight, Tensor):
            weight = weight.to(self.device, self.dtype).contiguous()
        return Part(weight, None if part.bias is None else part.bias.to(self.device, self.dtype))


def _dense(weight: Tensor | QuantizedWeight, dtype: torch.dtype = torch.float32) -> Tensor:
    return weight if isinstance(weight, Tensor) else dequantized(weight, dtype)


def output_weight(checkpoint: WeightSource, config: ModelConfig) -> Tensor | QuantizedWeight:
    """The weight of the projection to the vocabulary, as the checkpoint has it."""
    return checkpoint.take(_output_name(checkpoint, config), (config.vocab_size, config.hidden_size))


def _output_name(checkpoint: WeightSource, config: ModelConfig) -> str:
    return _EMBEDDING if checkpoint.headless or (config.tie and not checkpoint.has(_OUTPUT)) else _OUTPUT


def _equal(one: Tensor | QuantizedWeight, other: Tensor | QuantizedWeight) -> bool:
    """Whether both are numbers, and the same."""
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)


def _joined(parts: list[Part]) -> list[Part]:
    """One part if no weight is quantized; else the parts as they are."""
    weights = [part.weight for part in parts if isinstance(part.weight, Tensor)]
    if len(weights) < len(parts) or len(parts) == 1:
        return parts
    biases = [part.bias for part in parts if part.bias is not None]
    return [Part(torch.cat(weights), torch.cat(biases) if biases else None)]


def rounded(number: float, dtype: torch.dtype) -> float:
    """The nearest number in ``dtype``."""
    return float(torch.tensor(number, dtype=dtype))


def _attention_norm(layer: str) -> str:
    return f"{layer}.input_layernorm.weight"


class Packer:
    """Makes projections for steps that run an operator at a time. On CPUs quantized weights become numbers.

    Attributes:
        dtype: dtype of the projections, except quantized ones.
        device: device of the projections.
        quantization: quantization of the layers' projections.
        formats: those of the quantized weights that stay so.
    """

    def __init__(
        self, dtype: torch.dtype, device: torch.device, strict: bool, quantization: Quantization | None
    ) -> None:
        self.quantization = quantization
        self.dtype, self.device, self._strict = dtype, device, strict
        self.formats: set[QuantFormat] = set()
        self._row_ranges: dict[tuple[int, int, torch.dtype, Quantization | None], RowRange] = {}

    def __call__(self, parts: Sequence[Part], inner: bool) -> Linear:
        """The fastest form of a projection; in strict mode, among forms whose rows do not depend on each other."""
        if takes_triton(self.device) and not all(isinstance(part.weight, Tensor) for part in parts):
            self.formats |= {part.weight.format for part in parts if not isinstance(part.weight, Tensor)}
            return quantized_linear(parts, self.dtype, self.device, few_rows=not self._strict)
        dense = [Part(_dense(part.weight, self.dtype).to(self.device), part.bias) for part in parts]
        (part,) = _joined(dense)
        assert isinstance(part.weight, Tensor)
        weight = part.weight
        quantization = self.quantization if inner else None
        strict = self._strict and not takes_triton(weight.device)
        try:
            rows = self._row_range(weight, quantization) if strict else None
            linear = pack(weight, part.bias, few_rows=not self._strict, quantization=quantization)
        except ValueError as error:
            raise ModelError(str(error)) from None
        return linear if rows is None else InvariantLinear(linear, rows)

    def _row_range(self, weight: Tensor, quantization: Quantization | None) -> RowRange:
        out, inner = weight.shape
        shape = (inner, out, weight.dtype, quantization)
        if shape not in self._row_ranges:
            self._row_ranges[shape] = row_range(*shape[:3], partial(pack, quantization=quantization))
        return self._row_ranges[shape]
