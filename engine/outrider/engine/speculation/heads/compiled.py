"""The layers of an EAGLE-3 head on the compiled decoder, beside a target that runs there too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from outrider.engine.models import rotary
from outrider.engine.models.quantization import AT_LOAD, codes_at_load
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.engine.speculation.heads.shape import EagleShape
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.pool import KvPool
from outrider.native.decoder import NativeDecoder
from outrider.native.weights import DecoderShape, Features, LayerWeights, Part, Projection
from torch import Tensor

_PAGE_SIZE, _PAGES = 32, 64


class CompiledEagle:
    """Runs an EAGLE-3 head's layers in one call a step, and holds the pages of its keys and values.

    Takes the weights of the layers out of the head, which keeps what projects features and scores states.

    Args:
        head: as read from files.
        target: the target's decoder, whose embedding serves where the head has none and whose threads are as many.
        dtype: of weights that are not quantized.
        quantization: one of `AT_LOAD` for the layers' weights whose input features it divides, or None.
        context_length: longest sequence, in tokens.

    Attributes:
        pool: the pages.
    """

    def __init__(
        self,
        head: EagleHead,
        target: NativeDecoder,
        dtype: torch.dtype,
        quantization: str | None,
        context_length: int,
    ) -> None:
        shape, tensors = head.shape, head.tensors
        features = Features(_vector(tensors.pop("layers.0.hidden_norm.weight")), shape.norm_before_residual)
        layers = [_layer(head, index, dtype, quantization) for index in range(shape.layers)]
        table = rotary.rope_table(shape.rope, shape.head_dim, context_length).squeeze(1)
        self._decoder = NativeDecoder(
            target.library, _sizes(shape, 1.0 if shape.own_embedding else target.model.embedding_scale), dtype,
            tensors.pop("embed_tokens.weight").to(dtype) if shape.own_embedding else target,
            layers, _vector(tensors["norm.weight"]), None, table, target.threads,
            partial(torch.empty, dtype=torch.uint8), features,
        )  # fmt: skip
        self._target, self._shape, self._free = target, shape, list[int]()
        self.pool = self._new_pool(0)

    def run(self, ids: Sequence[int], sequences: Sequence[SequenceRows], features: Tensor) -> Tensor:
        """States of rows of several sequences, float32 [rows, 2, hidden_size]: before the last norm, and behind it.

        Args:
            ids: the token behind each row's features.
            sequences: where the rows stand; keys and values go to their pages.
            features: float32 [rows, hidden_size].
        """
        self._decoder.use(self._target.threads)
        batch = RaggedBatch.build(sequences, _PAGE_SIZE)
        states, last = torch.empty(batch.rows, 2, self._shape.hidden_size), self._shape.layers
        self._decoder.forward(torch.tensor(ids), batch, self.pool, (last, last + 1), states, features.contiguous())
        return states

    def reserve(self, pages: list[int], tokens: int) -> None:
        """Appends pages until there is room for ``tokens``."""
        while len(pages) * _PAGE_SIZE < tokens:
            if not self._free:
                self._grow()
            pages.append(self._free.pop())

    def release(self, pages: list[int]) -> None:
        """Overwrites pages, and takes them back."""
        if pages:  # a pool that nothing was written to has none
            self.pool.wipe(pages)
        self._free += pages
        pages.clear()

    def _grow(self) -> None:
        old, count = self.pool, self.pool.pages
        self.pool = self._new_pool(max(2 * count, _PAGES))
        self.pool.data[:, : old.data.shape[1]] = old.data
        old.data.zero_()
        self._free += range(self.pool.pages - 1, count - 1, -1)

    def _new_pool(self, pages: int) -> KvPool:
        shape, dtype = self._shape, self._decoder.kv_dtypes[0]
        packed = self._decoder.packs(dtype)
        return KvPool(shape.layers, pages, _PAGE_SIZE, shape.kv_heads, shape.head_dim, dtype, packed=packed)


def is_compiled(shape: EagleShape, dtype: torch.dtype) -> bool:
    """Whether there is compiled code for the sizes of a head."""
    return _sizes(shape, 1.0).refusal(dtype) is None and not shape.heads * shape.head_dim % 16


def _sizes(shape: EagleShape, embedding_scale: float) -> DecoderShape:
    return DecoderShape(
        shape.hidden_size,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.intermediate_size,
        shape.vocabulary,
        shape.norm_eps,
        embedding_scale=embedding_scale,
    )


def _layer(head: EagleHead, index: int, dtype: torch.dtype, quantization: str | None) -> LayerWeights:
    shape, tensors, name = head.shape, head.tensors, f"layers.{index}"
    rotated = shape.rope.rotated(shape.head_dim)

    def order(rows: Tensor) -> Tensor:
        return rotary.interleave(rows, shape.head_dim, rotated)

    def projection(*names: str) -> Projection:
        parts = []
        for each in names:
            weight, bias = tensors.pop(f"{name}.{each}.weight"), tensors.pop(f"{name}.{each}.bias", None)
            if each.endswith(("q_proj", "k_proj")):
                weight, bias = order(weight), None if bias is None else order(bias)
            parts.append((weight, bias))
        if quantization is not None and not parts[0][0].shape[1] % AT_LOAD[quantization]:
            return Projection(tuple(Part(codes_at_load(weight, quantization), bias) for weight, bias in parts))
        biases = [bias for _, bias in parts if bias is not None]
        joined = torch.cat([weight for weight, _ in parts]).to(dtype)
        return Projection((Part(joined, torch.cat(biases) if biases else None),))

    def head_norm() -> Tensor | None:
        if not shape.query_key_norm:
            return None
        norms = (order(_vector(tensors.pop(f"{name}.self_attn.{part}_norm.weight"))) for part in "qk")
        counts = shape.heads, shape.kv_heads
        return torch.cat([norm.expand(count, -1) for norm, count in zip(norms, counts, strict=True)])

    return LayerWeights(
        attention_norm=_vector(tensors.pop(f"{name}.input_layernorm.weight")),
        qkv=projection("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        head_norm=head_norm(),
        output=projection("self_attn.o_proj"),
        feed_forward_norm=_vector(tensors.pop(f"{name}.post_attention_layernorm.weight")),
        gate_up=projection("mlp.gate_proj", "mlp.up_proj"),
        down=projection("mlp.down_proj"),
    )


def _vector(tensor: Tensor) -> Tensor:
    return tensor.float()
