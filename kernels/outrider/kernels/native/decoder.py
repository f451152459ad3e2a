"""The compiled decoder as Python sees it: weights packed once, a step a call."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass

import numpy as np
import torch
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.huge_pages import Arena
from outrider.kernels.native.build import library
from outrider.kernels.native.sequences import Sequences
from outrider.kernels.pool import KvPool
from torch import Tensor

HEAD_DIMS = (16, 32, 64, 80, 96, 128, 256)
"""Sizes of a head that there is code for."""
SHARED = 16 << 20
"""Products in a step, rows times weights, from which on other threads are woken: about 0.1 ms of one thread's work."""
_FAULTS = {
    1: (IndexError, "a token id is not in the vocabulary"),
    2: (IndexError, "a position is beyond the model's context"),
    3: (ValueError, "a sequence names a page that the pool does not have"),
}


@dataclass(frozen=True, slots=True)
class Product:
    """A weight [out_features, in_features] and a bias [out_features] or None."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Of one layer; norms are float32, None where they are folded into the product behind them.

    Queries and keys are in the interleaved rotary order of `outrider.kernels.rope_kv_write`; ``qkv`` and ``gate_up``
    are joined products, ``head_norm`` is [heads + kv_heads, head_dim].
    """

    attention_norm: Tensor | None
    qkv: Product
    head_norm: Tensor | None
    output: Product
    feed_forward_norm: Tensor | None
    gate_up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a decoder; ``eps`` is of its norms."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    eps: float

    def refusal(self, dtype: torch.dtype) -> str | None:
        """What there is no code for, None where there is."""
        if dtype not in (torch.float32, torch.bfloat16):
            return f"weights in {dtype}; only float32 and bfloat16 are compiled"
        if self.head_dim not in HEAD_DIMS:
            return f"heads of {self.head_dim}; only {', '.join(map(str, HEAD_DIMS))} are compiled"
        if self.hidden % 16 or self.intermediate % 16:
            return f"{self.hidden} hidden and {self.intermediate} intermediate features; both must be multiples of 16"
        return None


class _Linear(Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("n", c_int64), ("k", c_int64))


class _Layer(Structure):
    _fields_ = (
        ("attention_norm", c_void_p),
        ("qkv", _Linear),
        ("head_norm", c_void_p),
        ("output", _Linear),
        ("feed_forward_norm", c_void_p),
        ("gate_up", _Linear),
        ("down", _Linear),
    )


class Model(Structure):
    """A model as the library takes it."""

    _fields_ = (
        *((name, c_int32) for name in ("hidden", "heads", "kv_heads", "head_dim", "intermediate", "layers")),
        *((name, c_int32) for name in ("is_bf16", "threads")),
        ("eps", c_float),
        ("query_scale", c_float),
        ("vocabulary", c_int64),
        ("positions", c_int64),
        ("shared", c_int64),
        ("embedding", c_void_p),
        ("turns", c_void_p),
        ("norm", c_void_p),
        ("layer", POINTER(_Layer)),
        ("logits", _Linear),
    )


class _Step(Structure):
    _fields_ = (
        ("ids", c_void_p),
        ("positions", c_void_p),
        ("sequences", c_void_p),
        ("pool", c_void_p),
        ("hidden", c_void_p),
        ("layer_stride", c_int64),
        *((name, c_int32) for name in ("count", "rows", "page_size", "pages")),
    )


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library with its functions' types."""
    loaded.outrider_packed_size.argtypes = (c_int64, c_int64, c_int)
    loaded.outrider_packed_size.restype = c_int64
    loaded.outrider_pack.argtypes = (c_void_p, c_void_p, c_int64, c_int64, c_int)
    loaded.outrider_keeps_bf16.argtypes = loaded.outrider_new.argtypes = (POINTER(Model),)
    loaded.outrider_new.restype = c_void_p
    loaded.outrider_free.argtypes = (c_void_p,)
    loaded.outrider_forward.argtypes = (c_void_p, POINTER(_Step))
    loaded.outrider_logits.argtypes = (c_void_p, c_void_p, c_int64, c_void_p)
    return loaded


class NativeDecoder:
    """A Llama-family decoder; see `outrider.kernels.native`.

    Attributes:
        kv_dtype: what keys and values are kept in.
        packs_pages: whether pools have to be packed.
        library: that it is of.
        model: as the library has it.
        handle: by which the library knows the decoder.

    Args:
        shape: of the model.
        dtype: float32 or bfloat16, of all products and the embedding.
        embedding: [vocabulary, hidden].
        layers: taken one by one, so that no more than one is held beside its packed form.
        norm: float32 [hidden], before the output.
        output: the product to the vocabulary.
        turns: complex64 [positions, head_dim / 2], rotary.
        threads: that run a step together, unless it has so little to do that the others would come too late.

    Raises:
        NativeUnavailable: the library is not there and cannot be compiled.
        ValueError: there is no code for the shape or dtype.
    """

    def __init__(
        self,
        shape: DecoderShape,
        dtype: torch.dtype,
        embedding: Tensor,
        layers: Iterable[LayerWeights],
        norm: Tensor,
        output: Product,
        turns: Tensor,
        threads: int,
    ) -> None:
        if refusal := shape.refusal(dtype):
            raise ValueError(refusal)
        self.library, self._shape = _typed(library()), shape
        self._is_bf16 = int(dtype == torch.bfloat16)
        self._kept: list[Tensor] = []
        self._arena = Arena()
        made = [self._layer(layer) for layer in layers]
        model = Model(
            shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.intermediate, len(made),
            self._is_bf16, threads, shape.eps, shape.head_dim**-0.5 * float(np.log2(np.e)),
            shape.vocabulary, turns.shape[0], SHARED, self._keep(embedding), self._keep(torch.view_as_real(turns)),
            self._keep(norm), (_Layer * len(made))(*made), self._pack(output),
        )  # fmt: skip
        self.model = model
        self.kv_dtype = torch.bfloat16 if self.library.outrider_keeps_bf16(model) else torch.float32
        self.packs_pages = self.kv_dtype == torch.bfloat16
        self.handle = self.library.outrider_new(model)
        weakref.finalize(self, self.library.outrider_free, self.handle)

    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor:
        """Runs a step, and writes its rows' keys and values to their slots.

        Args:
            ids: int64 [rows] tokens, sequence after sequence.
            batch: where the rows stand.
            pool: of `kv_dtype`, packed if `packs_pages`.

        Returns:
            float32 [rows, hidden] after the last norm.

        Raises:
            IndexError: a position or an id is beyond the model's.
            ValueError: the pool is of another kind, a page is not in it, or a tree has more nodes than can be walked.
        """
        self.check(pool)
        hidden = torch.empty(batch.rows, self._shape.hidden)
        sequences = Sequences(batch)
        step = _Step(
            ids.data_ptr(), batch.address, sequences.address, pool.data.data_ptr(),
            hidden.data_ptr(), pool.data.stride(0), len(batch.sequences), batch.rows, pool.page_size, pool.pages,
        )  # fmt: skip
        if fault := self.library.outrider_forward(self.handle, step):
            kind, text = _FAULTS[fault]
            raise kind(text)
        return hidden

    def check(self, pool: KvPool) -> None:
        """`ValueError` unless ``pool`` is of `kv_dtype`, and packed where that is bfloat16."""
        if pool.dtype != self.kv_dtype:
            raise ValueError(f"keys and values are in {pool.dtype}; this decoder keeps them in {self.kv_dtype}")
        if pool.packed != self.packs_pages:
            raise ValueError(f"the pool is {'' if pool.packed else 'not '}packed; this decoder's are the other way")

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 [n, vocabulary] of rows [n, hidden] that `forward` returned."""
        hidden = hidden.contiguous()
        out = torch.empty(hidden.shape[0], self._shape.vocabulary)
        self.library.outrider_logits(self.handle, hidden.data_ptr(), hidden.shape[0], out.data_ptr())
        return out

    def _layer(self, layer: LayerWeights) -> _Layer:
        return _Layer(
            self._keep(layer.attention_norm),
            self._pack(layer.qkv),
            self._keep(layer.head_norm),
            self._pack(layer.output),
            self._keep(layer.feed_forward_norm),
            self._pack(layer.gate_up),
            self._pack(layer.down),
        )

    def _keep(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        self._kept.append(tensor.contiguous())
        return self._kept[-1].data_ptr()

    def _pack(self, product: Product) -> _Linear:
        n, k = product.weight.shape
        weight = product.weight.contiguous()
        packed = self._arena.take(self.library.outrider_packed_size(n, k, self._is_bf16))
        self.library.outrider_pack(packed.data_ptr(), weight.data_ptr(), n, k, self._is_bf16)
        bias = None if product.bias is None else product.bias.float()
        return _Linear(self._keep(packed), self._keep(bias), n, k)
