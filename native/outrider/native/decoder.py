"""The compiled decoder: weights are packed once, and each step is one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import torch
from outrider.native import moves
from outrider.native.library import Library, checked, data_pointer, ffi
from outrider.native.moves import pool_fields
from outrider.native.packing import Packing
from outrider.native.quantized import QuantizedWeight
from outrider.native.step import Batch, sequences_of
from outrider.native.weights import DecoderShape, Features, LayerWeights, Part, Projection
from torch import Tensor

SHARED = 16 << 20
"""Multiply-adds of a step from which on other threads are woken: about 0.1 ms of one thread's work."""


class DecoderPool(moves.PagePool, Protocol):
    """Pages of keys and values that a decoder writes and reads."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of keys and values."""
        ...


class NativeDecoder:
    """A Llama-family decoder; see `outrider.native`.

    Attributes:
        kv_dtypes: dtypes that keys and values may have; the first is the usual one.
        packs_pages: whether pools must be packed, unless they are in float32.
        library: the compiled library with its code.
        model: the ``outrider_model *``.
        handle: the ``outrider_decoder *`` of the next step.
        threads: of the next step.

    Args:
        library: the compiled library.
        shape: sizes of the model.
        dtype: of the model; keys and values are in bfloat16 if that is its dtype and the CPU multiplies it.
        embedding: [vocabulary, hidden], or a decoder that has it.
        layers: read one by one, so that at most one is in memory beside its packed form.
        norm: float32 [hidden], before the output.
        output: the projection to the vocabulary; a quantized weight that is also the embedding is packed once. None for
            a decoder whose `logits` are not asked for.
        rope: complex64 [positions, head_dim / 2], rotary; of layers that have none of their own.
        threads: that run a step together; a step too short for several runs on one.
        memory: allocates uint8 [size] for weights, called in the order in which a step reads them.
        features: of an EAGLE-3 head; None for other models.

    Raises:
        ValueError: there is no code for the shape, or for the dtype or form of a weight.
    """

    def __init__(
        self,
        library: Library,
        shape: DecoderShape,
        dtype: torch.dtype,
        embedding: Tensor | QuantizedWeight | NativeDecoder,
        layers: Iterable[LayerWeights],
        norm: Tensor,
        output: Projection | None,
        rope: Tensor,
        threads: int,
        memory: Callable[[int], Tensor],
        features: Features | None = None,
    ) -> None:
        if refusal := shape.refusal(dtype):
            raise ValueError(refusal)
        self.library, self._functions, self._shape = library, library.functions, shape
        self._kept: list[Any] = []
        self._packing = Packing(library, memory, threads)
        layer_array = ffi.new("outrider_layer[]", [self._layer(layer, rope) for layer in layers])
        fields = asdict(shape) | {
            "layers": len(layer_array),
            "layer": self._retain(layer_array),
            "is_bf16": dtype == torch.bfloat16,
            "query_scale": (shape.query_scale or shape.head_dim**-0.5) * float(np.log2(np.e)),
            "positions": rope.shape[0],
            "shared": SHARED,
            "embedding": self._table(embedding),
            "norm": self._keep(norm),
        }
        if output is not None:
            fields["logits"] = self._packing.projection(output)
        if features is not None:
            fields |= {"feature_norm": self._keep(features.norm), "normed_residual": features.normed_residual}
        self.model = ffi.new("outrider_model *", fields)
        self.packs_pages = bool(self._functions.outrider_packs_pages(self.model))
        narrow = (torch.bfloat16,) if self.packs_pages else ()
        self.kv_dtypes: tuple[torch.dtype, ...] = (*narrow, torch.float32, torch.int8)
        self._handles: dict[int, Any] = {}
        self.use(threads)

    def use(self, threads: int) -> None:
        """Runs the next steps on ``threads`` threads. Called between steps, by the thread that runs them.

        Raises:
            MemoryError: there is no memory for the threads.
            OSError: the system does not start them.
        """
        if threads not in self._handles:
            self.model.threads = threads
            made = ffi.new("outrider_decoder **")
            checked(self._functions.outrider_decoder_new(self.model, made))
            self._handles[threads] = ffi.gc(made[0], self._functions.outrider_decoder_free)
        self.handle, self.threads = self._handles[threads], threads

    @property
    def weights(self) -> list[Any]:
        """The ``outrider_linear`` of all projections of a row, in their order."""
        layers = [self.model.layer[index] for index in range(self.model.layers)]
        every = [*(each for layer in layers for each in self._projections(layer)), self.model.logits]
        return [projection.parts[index] for projection in every for index in range(projection.count)]

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that a step of one row reads."""
        return self._packing.read

    def forward(
        self,
        ids: Tensor,
        batch: Batch,
        pool: DecoderPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        """Runs a step, and writes its rows' keys and values to their slots.

        Args:
            ids: int64 [rows] tokens, sequence after sequence.
            batch: where the rows stand.
            pool: of one of `kv_dtypes`, packed as `packs` says.
            layers: what ``states`` are kept of: the states that enter a layer, the last norm, or leave that.
            states: float32 [rows, len(layers), hidden], filled by the step; None without ``layers``.
            features: float32 [rows, hidden], contiguous, of an EAGLE-3 head; None for other models.

        Returns:
            float32 [rows, hidden] after the last norm.

        Raises:
            IndexError: a position is beyond the model's context, or an id is not in its vocabulary.
            ValueError: the pool is of another kind, a page is not in it, or a tree has more nodes than can be walked.
            MemoryError: there is no memory for the step.
        """
        self.check(pool)
        hidden = torch.empty(batch.rows, self._shape.hidden)
        sequences, _kept = sequences_of(batch)
        tapped = ffi.new("int32_t[]", list(layers)) if layers else ffi.NULL
        positions = ffi.from_buffer("int64_t[]", batch.places)
        fields = (
            data_pointer(ids),
            positions,
            sequences,
            pool_fields(pool),
            data_pointer(hidden),
            len(sequences),
            batch.rows,
            len(layers),
            tapped,
            ffi.NULL if states is None else data_pointer(states),
            ffi.NULL if features is None else data_pointer(features),
        )
        step = ffi.new("outrider_step *", fields)
        checked(self._functions.outrider_decoder_forward(self.handle, step))
        return hidden

    def packs(self, dtype: torch.dtype) -> bool:
        """Whether pages in ``dtype`` must be packed."""
        return self.packs_pages and dtype != torch.float32

    def check(self, pool: DecoderPool) -> None:
        """`ValueError` unless ``pool`` is in one of `kv_dtypes`, and packed where that must be."""
        if pool.dtype not in self.kv_dtypes:
            allowed = ", ".join(map(str, self.kv_dtypes))
            raise ValueError(f"keys and values are in {pool.dtype}; this decoder keeps them in {allowed}")
        if pool.packed != self.packs(pool.dtype):
            raise ValueError(f"the pool is {'' if pool.packed else 'not '}packed; this decoder's are the other way")

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 [n, vocabulary] of rows [n, hidden] that `forward` returned; `MemoryError` where there is no room."""
        hidden = hidden.contiguous()
        out = torch.empty(hidden.shape[0], self._shape.vocabulary)
        args = self.handle, data_pointer(hidden), hidden.shape[0], data_pointer(out)
        checked(self._functions.outrider_decoder_logits(*args))
        return out

    def beside(self, weight: Tensor | QuantizedWeight) -> NativeLinear:
        """A further weight [n, k], quantized or in float32, bfloat16 or float16, that this decoder's threads multiply.

        Raises:
            ValueError: there is no code for the weight.
        """
        return NativeLinear(self, weight)

    def embed(self, ids: Tensor) -> Tensor:
        """Float32 [n, hidden] that enters the first layer for int64 [n] ids of the vocabulary."""
        out = torch.empty(len(ids), self._shape.hidden)
        self._functions.outrider_decoder_embed(self.handle, data_pointer(ids), len(ids), data_pointer(out))
        return out

    def _layer(self, layer: LayerWeights, rope: Tensor) -> dict[str, Any]:
        fields = {
            "attention_norm": self._keep(layer.attention_norm),
            "qkv": self._packing.projection(layer.qkv),
            "head_norm": self._keep(layer.head_norm),
            "key_balance": self._keep(layer.key_balance),
            "rope": self._keep(torch.view_as_real(rope if layer.rope is None else layer.rope)),
            "window": layer.window or 0,
            "output": self._packing.projection(layer.output),
            "after_attention": self._keep(layer.after_attention),
            "feed_forward_norm": self._keep(layer.feed_forward_norm),
            "after_feed_forward": self._keep(layer.after_feed_forward),
        }
        projections = {"gate_up": layer.gate_up, "down": layer.down, "router": layer.router}
        fields |= {name: self._packing.projection(each) for name, each in projections.items() if each is not None}
        experts = [tuple(map(self._packing.projection, pair)) for pair in layer.experts]
        return fields | ({"experts": self._retain(ffi.new("outrider_expert[]", experts))} if experts else {})

    def _projections(self, layer: Any) -> list[Any]:
        """The ``outrider_projection`` of a layer, in their order."""
        if not layer.experts:
            return [layer.qkv, layer.output, layer.gate_up, layer.down]
        experts = [layer.experts[index] for index in range(self.model.experts)]
        return [layer.qkv, layer.output, layer.router, *(p for each in experts for p in (each.gate_up, each.down))]

    def _table(self, embedding: Tensor | QuantizedWeight | NativeDecoder) -> Any:
        if isinstance(embedding, NativeDecoder):
            return self._retain(embedding).model.embedding
        return self._packing.table(embedding)

    def _keep(self, tensor: Tensor | None) -> Any:
        return ffi.NULL if tensor is None else data_pointer(self._retain(tensor.contiguous()))

    def _retain(self, value: Any) -> Any:
        """Returns ``value``, which then lives as long as the decoder."""
        self._kept.append(value)
        return value


class NativeLinear:
    """A weight beside a decoder's: [rows, k] to float32 [rows, n], by the thread that runs the decoder's steps.

    Attributes:
        dtype: of rows and results.
        in_features: k, a multiple of 16.
        out_features: n.
    """

    def __init__(self, decoder: NativeDecoder, weight: Tensor | QuantizedWeight) -> None:
        self.out_features, self.in_features = weight.shape
        if self.in_features % 16:
            raise ValueError(f"a weight of {self.in_features} input features; they must be a multiple of 16")
        self.dtype, self._decoder = torch.float32, decoder
        self._packing = Packing(decoder.library, lambda size: torch.empty(size, dtype=torch.uint8), 1)
        self._projection = ffi.new("outrider_projection *", self._packing.projection(Projection((Part(weight),))))

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, n]; `MemoryError` where there is no room."""
        x = x.contiguous()
        out = torch.empty(len(x), self.out_features)
        sizes = self.in_features, len(x), data_pointer(out), self.out_features
        functions = self._decoder.library.functions
        checked(functions.outrider_decoder_project(self._decoder.handle, self._projection, data_pointer(x), *sizes))
        return out
