"""The Llama-family decoder (Touvron et al. 2023, "Llama 2") over paged keys and values."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

import torch
from outrider.kernels.backend import takes_triton
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.invariance import NotInvariant
from outrider.kernels.linear import Quantization
from outrider.kernels.pool import KvPool
from outrider.kernels.shapes import ModelShape
from outrider.kernels.tree_attention import check_attention
from outrider.kernels.warm_up import warm_up
from outrider.models.checkpoint import Checkpoint
from outrider.models.config import DTYPES, ModelConfig
from outrider.models.eager import EagerForward
from outrider.models.errors import ModelError
from outrider.models.native import native_forward, native_refusal
from outrider.models.proof import prove_invariance
from outrider.models.weights import Packer, WeightLoader
from outrider.native.decoder import NativeDecoder
from outrider.native.weights import Product
from torch import Tensor

__all__ = ["LlamaModel", "ModelConfig", "ModelError"]

Determinism = Literal["strict", "fast"]


class Forward(Protocol):
    """How a step is run; see `LlamaModel` for what its methods take and return.

    Attributes:
        kv_dtype: what keys and values are kept in.
    """

    kv_dtype: torch.dtype

    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


class LlamaModel:
    """A decoder that runs any mix of prompt chunks and trees in one step.

    On a CPU the whole step is one call where `outrider.native` can be had, on a GPU one graph where it has few
    rows (`outrider.models.graphs`); else it goes an operator at a time.

    Attributes:
        config: of the directory it was loaded from.
        device: where it runs.
        dtype: of its weights; the residual stream is in float32, on CPU keys, values and attention too.
    """

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, device: torch.device, quantization: Quantization | None
    ) -> None:
        self.config, self.dtype, self.device = config, dtype, device
        self._quantization = quantization
        self._forward: Forward

    @property
    def compiled(self) -> NativeDecoder | None:
        """The compiled decoder whose calls its steps are; None where they run an operator at a time."""
        return self._forward if isinstance(self._forward, NativeDecoder) else None

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        determinism: Determinism = "fast",
        quantization: Quantization | None = None,
        graphs: bool = True,
    ) -> LlamaModel:
        """The model in a Hugging Face directory.

        Args:
            directory: with config.json and safetensors.
            dtype: ``float32``, ``bfloat16`` or ``float16``. ``auto`` is the checkpoint's. On a CPU, ``auto`` is float32
                where neither the compiled decoder nor the CPU's instructions multiply in the checkpoint's.
            device: ``cpu``, ``cuda`` for the Triton kernels, or another device of torch, on which the operators of the
                CPU run.
            determinism: ``strict`` makes a row's bits depend on the tokens before it alone; ``fast`` does not.
            quantization: of the layers' weights, at load: see `outrider.kernels.linear.pack`. The embedding and the
                output stay as they are.
            graphs: whether steps of few rows on a GPU run as CUDA graphs.

        Raises:
            ModelError: the directory or the request is not supported, or this machine cannot be made deterministic.
        """
        config = ModelConfig.load(directory)
        place = _device(device)
        chosen = _dtype(dtype, config, place, quantization)
        strict = _is_strict(determinism, place)
        try:
            checkpoint = Checkpoint(directory)
            model = cls(config, chosen, place, quantization)
            with torch.inference_mode():
                model._forward = _forward(checkpoint, model, strict, quantization, graphs)
            if strict:
                prove_invariance(model)
        except NotInvariant as error:
            raise ModelError(f'determinism = "strict" cannot be kept here: {error}') from None
        checkpoint.finish(ignored=("rotary_emb.inv_freq", *(("lm_head.weight",) if config.tie else ())))
        return model

    def new_pool(self, pages: int, page_size: int) -> KvPool:
        """Empty pages for this model's keys and values, in the dtype that its forward wants.

        On a GPU the kernels that a step with such pages launches are compiled now, not by the first request.

        Raises:
            ModelError: there are no kernels for such pages.
        """
        config = self.config
        triton = takes_triton(self.device)
        dtype = self._forward.kv_dtype
        packed = self.compiled is not None and self.compiled.packs_pages
        pool = KvPool(config.layers, pages, page_size, config.kv_heads, config.head_dim, dtype, self.device, packed)
        if triton:
            try:
                check_attention(pool, config.heads, self.dtype)
            except ValueError as error:
                raise ModelError(str(error)) from None
        if triton and self.device.type == "cuda":
            warm_up(self.kernel_shape(page_size), self.device)
        return pool

    def kernel_shape(self, page_size: int) -> ModelShape:
        """What the kernels of this model depend on."""
        config = self.config
        return ModelShape(
            name="model",
            hidden=config.hidden_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            intermediate=config.intermediate_size,
            vocabulary=config.vocab_size,
            layers=config.layers,
            dtype=self.dtype,
            kv_dtype=self.dtype,
            page_size=page_size,
            head_norm=config.query_key_norm,
            quantization=self._quantization,
        )

    def forward(self, ids: Tensor, batch: RaggedBatch, pool: KvPool) -> Tensor:
        """Runs a step, and writes its rows' keys and values to their slots.

        Args:
            ids: int64 [rows] tokens, sequence after sequence.
            batch: where the rows stand.
            pool: of `new_pool`.

        Returns:
            float32 [rows, hidden_size] after the last norm.

        Raises:
            IndexError: a position or an id is beyond the model's.
        """
        return self._forward.forward(ids, batch, pool)

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 [n, vocab_size] of rows [n, hidden_size] that `forward` returned."""
        return self._forward.logits(hidden)


def _forward(
    checkpoint: Checkpoint, model: LlamaModel, strict: bool, quantization: Quantization | None, graphs: bool
) -> Forward:
    parts = (checkpoint, model.config, model.dtype, model.device)
    if native_refusal(*parts[1:], quantization) is None:
        return native_forward(WeightLoader(*parts, lambda weight, bias, inner: Product(weight, bias)))
    eager = EagerForward(WeightLoader(*parts, Packer(strict, quantization)), strict)
    if not graphs or model.device.type != "cuda" or not takes_triton(model.device):
        return eager
    from outrider.models.graphs import CudaCapture, GraphForward

    with torch.cuda.device(model.device):
        return GraphForward(eager, CudaCapture())


def _dtype(asked: str, config: ModelConfig, device: torch.device, quantization: Quantization | None) -> torch.dtype:
    if asked not in ("auto", *DTYPES):
        raise ModelError(f"dtype is {asked!r}; it must be auto or one of {', '.join(DTYPES)}")
    chosen: torch.dtype = getattr(torch, config.dtype if asked == "auto" else asked)
    if asked != "auto" or device.type != "cpu" or _computes(chosen):
        return chosen
    return chosen if native_refusal(config, chosen, device, quantization) is None else torch.float32


def _computes(dtype: torch.dtype) -> bool:
    """Whether this CPU has instructions for products in ``dtype``."""
    if dtype == torch.bfloat16:
        found = torch.cpu.get_capabilities()
        return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))
    return dtype == torch.float32


def _is_strict(determinism: str, device: torch.device) -> bool:
    if determinism not in ("strict", "fast"):
        raise ModelError(f"determinism is {determinism!r}; it must be strict or fast")
    if determinism == "strict" and device.type != "cpu" and not takes_triton(device):
        raise ModelError(
            f'determinism = "strict" on {device.type} needs the Triton kernels: pip install "outrider[gpu]"'
        )
    return determinism == "strict"


def _device(asked: str) -> torch.device:
    try:
        return torch.empty(0, device=asked).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"device is {asked!r}, which torch cannot use here: {reason}") from None
