"""The Llama-family decoder (Touvron et al. 2023, "Llama 2") over paged keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.checkpoint import WeightSource
from outrider.engine.models.config import DTYPES, ModelConfig
from outrider.engine.models.gguf.checkpoint import GgufCheckpoint
from outrider.engine.models.gguf.header import GgufFile, is_gguf
from outrider.engine.models.native import native_forward, native_projection, native_refusal
from outrider.engine.models.operators.eager import EagerForward
from outrider.engine.models.proof import prove_invariance
from outrider.engine.models.quantization import AT_LOAD, codes_at_load
from outrider.engine.models.quantized import QuantizedCheckpoint, open_checkpoint
from outrider.engine.models.sharding.forward import LeadingForward, Say, load_share
from outrider.engine.models.sharding.group import Group
from outrider.engine.models.sharding.shard import Shard, shard_config
from outrider.engine.models.weights import Packer, WeightLoader, output_weight
from outrider.engine.pages.kv_dtype import chosen_kv_dtype
from outrider.kernels.backend import BackendError, takes_triton
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.invariance import NotInvariant
from outrider.kernels.kv_compact import Kept, kv_compact
from outrider.kernels.linear import Linear, Quantization, pack
from outrider.kernels.linear.gpu import multiplies_fp8
from outrider.kernels.pool import KvPool
from outrider.kernels.shapes import ModelShape
from outrider.kernels.tree_attention import check_attention
from outrider.kernels.warm_up import warm_up
from outrider.native.decoder import NativeDecoder
from outrider.native.levels import LevelError, supported_levels
from outrider.native.quantized import QuantFormat
from torch import Tensor

__all__ = ["LlamaModel", "ModelConfig", "ModelError"]

Determinism = Literal["strict", "fast"]
_KV_SCALES = ("k_scale", "v_scale", "kv_scale", "q_scale", "prob_scale", "k_proj.output_scale", "v_proj.output_scale")
_KV_ZEROS = ("k_zero_point", "v_zero_point")
_IGNORED = ("rotary_emb.inv_freq", *(f".{name}" for name in (*_KV_SCALES, *_KV_ZEROS)))
"""Endings of tensors without effect. Scales of keys and values are for caches in eight bits with one scale for all
tokens; ours has scales of its own for each token."""


class Forward(Protocol):
    """Runs steps; see `LlamaModel` for arguments and results of its methods.

    Attributes:
        kv_dtypes: dtypes that keys and values in pages may have; the first is the usual one.
    """

    @property
    def kv_dtypes(self) -> tuple[torch.dtype, ...]: ...

    def forward(
        self,
        ids: Tensor,
        batch: RaggedBatch,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...
    def embed(self, ids: Tensor) -> Tensor: ...


class LlamaModel:
    """A decoder that runs any mix of prompt chunks and trees in one step.

    On a CPU a whole step is one call, if `outrider.native` is available; on a GPU a step of few rows is one
    graph (`outrider.engine.models.operators.graphs`). Other steps run an operator at a time.

    Attributes:
        config: configuration of the model's directory.
        group: the ranks of which this process is one; None for a model in one process.
        shard: configuration of what this rank has of each layer: ``config`` without a group.
        device: device of the model.
        dtype: dtype of the weights; the residual stream is in float32, on CPU attention too.
        kv_dtype: dtype of keys and values in pages.
    """

    kv_dtype: torch.dtype

    def __init__(
        self,
        source: WeightSource,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        quantization: Quantization | None,
        group: Group | None = None,
    ) -> None:
        self.config, self.dtype, self.device = config, dtype, device
        self.group, self.shard = group, config if group is None else shard_config(config, group.size)
        self._source, self._quantization = source, quantization
        self._quants: QuantFormat | None = None
        self._forward: Forward

    @property
    def compiled(self) -> NativeDecoder | None:
        """The compiled decoder that runs the steps; None if steps run otherwise."""
        return self._forward if isinstance(self._forward, NativeDecoder) else None

    @property
    def steps(self) -> Forward:
        """What runs the steps."""
        return self._forward

    @property
    def ranks(self) -> int:
        """Number of processes that share the model."""
        return 1 if self.group is None else self.group.size

    @property
    def quantized(self) -> bool:
        """Whether the checkpoint is quantized, or its weights were at load."""
        return self._source.quantized or self._quantization is not None

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        determinism: Determinism = "fast",
        quantization: Quantization | None = None,
        kv_dtype: str = "auto",
        graphs: bool = True,
        group: Group | None = None,
        say: Say | None = None,
    ) -> LlamaModel:
        """Loads the model in a Hugging Face directory or a GGUF file.

        Args:
            directory: directory with config.json and safetensors, quantized or not
                (`outrider.engine.models.quantized`), or a ``.gguf`` file.
            dtype: ``float32``, ``bfloat16`` or ``float16``; ``auto`` is the checkpoint's dtype. On a CPU, ``auto`` is
                float32 if neither the compiled decoder nor the CPU's instructions multiply in the checkpoint's dtype.
            device: ``cpu``, ``cuda`` for the Triton kernels, or another device of torch, with the CPU's operators.
            determinism: ``strict`` makes a row's bits depend only on the tokens before it; ``fast`` does not.
            quantization: quantization of the layers' weights at load (see `outrider.kernels.linear.pack`), without the
                embedding and the output layer; for checkpoints that are not quantized. ``fp8`` is also taken for a
                checkpoint in such floats, which stays as it is.
            kv_dtype: of keys and values in pages: ``auto`` or one of `outrider.engine.pages.kv_dtype.KV_DTYPES`.
            graphs: whether steps of few rows on a GPU run as CUDA graphs, for a model in one process.
            group: the ranks among which the model is shared out; see `outrider.engine.models.sharding`.
            say: tells the other ranks what to run, on rank 0.

        Raises:
            ModelError: the directory, an argument or a variable of the environment is not supported, or this machine
                cannot run in strict mode.
        """
        config = ModelConfig.load(directory)
        return cls.of(
            open_weights(directory, quantization),
            config,
            dtype=dtype,
            device=device,
            determinism=determinism,
            quantization=quantization,
            kv_dtype=kv_dtype,
            graphs=graphs,
            group=group,
            say=say,
        )

    @classmethod
    def of(
        cls,
        source: WeightSource,
        config: ModelConfig,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        determinism: Determinism = "fast",
        quantization: Quantization | None = None,
        kv_dtype: str = "auto",
        graphs: bool = True,
        guesses: bool = False,
        group: Group | None = None,
        say: Say | None = None,
    ) -> LlamaModel:
        """The model of ``config`` with the weights of ``source``.

        Args:
            source: the weights.
            config: configuration of the model.
            dtype: as for `load`, like the arguments behind it.
            guesses: whether the model only guesses, so that ``quantization`` is of its output layer, too.

        Raises:
            ModelError: as for `load`.
        """
        torch_device = _device(device)
        quantization = None if source.quantized else quantization  # `open_weights` has found them to be one
        try:
            weight_dtype = _dtype(dtype, config, torch_device, quantization, compiled=group is None)
            strict = _is_strict(determinism, torch_device)
            source = source if group is None else Shard(source, group.rank, group.size)
            model = cls(source, config, weight_dtype, torch_device, quantization, group)
            with torch.inference_mode():
                balances = kv_dtype == "int8"
                model._forward = _forward(
                    source, model, strict, quantization, graphs, balances=balances, guesses=guesses, say=say
                )
            model.kv_dtype = chosen_kv_dtype(kv_dtype, model._forward.kv_dtypes)
            if strict and (group is None or group.rank == 0):
                prove_invariance(model)
        except NotInvariant as error:
            raise ModelError(f'determinism = "strict" cannot be kept here: {error}') from None
        except (BackendError, LevelError) as error:
            raise ModelError(str(error)) from None
        source.finish(ignored=_IGNORED)
        return model

    def token_bytes(self, kv_dtype: torch.dtype | None = None) -> int:
        """Bytes of a token's keys and values in `kv_dtype`, or in another one."""
        config = self.shard
        return KvPool.slot_bytes(config.layers, config.kv_heads, config.head_dim, kv_dtype or self.kv_dtype)

    @property
    def kv_dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtypes that `kv_dtype` may have."""
        return self._forward.kv_dtypes

    def new_pool(self, pages: int, page_size: int) -> KvPool:
        """Empty pages for this model's keys and values, in `kv_dtype`.

        On a GPU, compiles the kernels for steps with such pages now, not at the first request.

        Raises:
            ModelError: no kernel supports such pages, or there is not enough memory.
        """
        config = self.shard
        triton = takes_triton(self.device)
        dtype, packed = self.kv_dtype, self.compiled is not None and self.compiled.packs(self.kv_dtype)
        shape = (config.layers, pages, page_size, config.kv_heads, config.head_dim)
        try:
            pool = KvPool(*shape, dtype, self.device, packed)
        except (MemoryError, torch.OutOfMemoryError):
            size = pages * page_size * self.token_bytes()
            raise ModelError(f"{pages} pages take {size} bytes, which {self.device} does not have") from None
        if triton:
            try:
                check_attention(pool, config.heads, self.dtype)
            except ValueError as error:
                raise ModelError(str(error)) from None
        if triton and self.device.type == "cuda":
            warm_up(self.kernel_shape(page_size), self.device)
        return pool

    def kernel_shape(self, page_size: int) -> ModelShape:
        """The properties of this model that its kernels depend on."""
        config = self.shard
        return ModelShape(
            name="model",
            hidden=config.hidden_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            intermediate=config.intermediate_size if config.experts is None else config.experts.intermediate_size,
            vocabulary=config.vocab_size,
            layers=config.layers,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            page_size=page_size,
            head_norm=config.query_key_norm,
            norms_after=config.norms_after,
            gelu=config.activation == "gelu_tanh",
            quantization=self._quantization,
            experts=0 if config.experts is None else config.experts.count,
            active=0 if config.experts is None else config.experts.active,
            quants=self._quants,
        )

    def forward(
        self,
        ids: Tensor,
        batch: RaggedBatch,
        pool: KvPool,
        layers: Sequence[int] = (),
        states: Tensor | None = None,
    ) -> Tensor:
        """Runs a step; writes the rows' keys and values to their slots.

        Args:
            ids: int64 [rows], tokens sequence after sequence.
            batch: positions, parents and slots of the rows.
            pool: a pool from `new_pool`.
            layers: the states to keep of each row. Of n layers, 0 to n - 1 are what enters the layer, counted from 0:
                the residual stream with the results of all layers before. n is what enters the last norm, and n + 1
                what leaves that.
            states: float32 [rows, len(layers), hidden_size], filled with these states; None without ``layers``.

        Returns:
            float32 [rows, hidden_size] after the last norm.

        Raises:
            IndexError: a position or an id is out of the model's range.
        """
        return self._forward.forward(ids, batch, pool, layers, states)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits, float32 [n, vocab_size], of rows [n, hidden_size] from `forward`."""
        return self._forward.logits(hidden)

    def compact(self, pool: KvPool, kept: Sequence[Kept]) -> None:
        """`kv_compact` of the whole model's keys and values."""
        if isinstance(self._forward, LeadingForward):
            self._forward.compact(pool, kept)
        kv_compact(pool, kept)

    def wipe(self, pool: KvPool, pages: Sequence[int]) -> None:
        """`KvPool.wipe` of the whole model's keys and values."""
        if isinstance(self._forward, LeadingForward):
            self._forward.wipe(pool, pages)
        pool.wipe(pages)

    def beside(self, weight: Tensor, quantization: str | None = None) -> Linear:
        """The quickest form of a weight [out_features, in_features] of a model that runs in turn with this one.

        With ``quantization``, one of `AT_LOAD`, the compiled decoder multiplies quants, where it has code for the size.
        """
        compiled = self.compiled
        if compiled is None or weight.shape[1] % 16:
            return pack(weight, few_rows=True)
        if quantization is not None and not weight.shape[1] % AT_LOAD[quantization]:
            return compiled.beside(codes_at_load(weight, quantization))
        return compiled.beside(weight.to(self.dtype))

    def guessing_output(self, quantization: str | None) -> Callable[[Tensor], Tensor]:
        """`logits` for guesses: by a quantized copy of an output layer that is compiled and in 16 or 32 bits."""
        compiled, unfit = self.compiled, quantization is None or self.config.hidden_size % AT_LOAD[quantization]
        weight = None if compiled is None or unfit else output_weight(self._source, self.config)
        return self.beside(weight, quantization) if isinstance(weight, Tensor) else self.logits

    def embed(self, ids: Tensor) -> Tensor:
        """Float32 [n, hidden_size] that enters the first layer for int64 [n] ids of the vocabulary."""
        return self._forward.embed(ids)


def open_weights(path: Path, quantization: Quantization | None = None) -> WeightSource:
    """The weights in a directory or a GGUF file; `ModelError` if they are quantized and are to be in another way."""
    checkpoint = GgufCheckpoint(GgufFile.open(path)) if is_gguf(path) else open_checkpoint(path)
    if quantization is None or not checkpoint.quantized:
        return checkpoint
    floats = isinstance(checkpoint, QuantizedCheckpoint) and checkpoint.floats
    if floats and quantization == "fp8":
        return checkpoint
    allowed = "none or fp8" if floats else "none"
    raise ModelError(f"{path} is quantized already; quantization is {quantization!r}, which must be {allowed} here")


def _forward(
    checkpoint: WeightSource,
    model: LlamaModel,
    strict: bool,
    quantization: Quantization | None,
    graphs: bool,
    *,
    balances: bool,
    guesses: bool,
    say: Say | None = None,
) -> Forward:
    parts = (checkpoint, model.shard, model.dtype, model.device)
    if isinstance(checkpoint, Shard) and model.group is not None:
        packer = Packer(model.dtype, model.device, strict, quantization)
        return load_share(checkpoint, model.config, model.group, packer, say)
    if native_refusal(*parts[1:], quantization) is None:
        make = partial(native_projection, quantization)
        quantized = checkpoint.quantized or quantization is not None
        return native_forward(WeightLoader(*parts, make, quantized=quantized, balances=balances, guesses=guesses))
    packer = Packer(model.dtype, model.device, strict, quantization)
    loader = WeightLoader(*parts, packer, quantized=checkpoint.quantized, balances=balances, guesses=guesses)
    eager = EagerForward(loader, strict)
    if len(packer.formats) == 1:
        (quants,) = packer.formats
        model._quants = replace(quants, rounds_rows=quants.rounds_rows and multiplies_fp8(model.device))
    if not (graphs and eager.on_device) or model.device.type != "cuda" or not takes_triton(model.device):
        return eager
    from outrider.engine.models.operators.graphs import CudaCapture, GraphForward

    return GraphForward(eager, CudaCapture(model.device))


def _dtype(
    name: str, config: ModelConfig, device: torch.device, quantization: Quantization | None, *, compiled: bool = True
) -> torch.dtype:
    if name not in ("auto", *DTYPES):
        raise ModelError(f"dtype is {name!r}; it must be auto or one of {', '.join(DTYPES)}")
    chosen: torch.dtype = getattr(torch, config.dtype if name == "auto" else name)
    if name != "auto" or device.type != "cpu" or _computes(chosen):
        return chosen
    return chosen if compiled and native_refusal(config, chosen, device, quantization) is None else torch.float32


def _computes(dtype: torch.dtype) -> bool:
    """Whether this CPU has instructions for matmuls in ``dtype``."""
    if dtype == torch.bfloat16:
        on_arm = torch.cpu.get_capabilities().get("bf16", False)
        return bool(on_arm) or any("avx512_bf16" in level.needs for level in supported_levels())
    return dtype == torch.float32


def _is_strict(determinism: str, device: torch.device) -> bool:
    if determinism not in ("strict", "fast"):
        raise ModelError(f"determinism is {determinism!r}; it must be strict or fast")
    if determinism == "strict" and device.type != "cpu" and not takes_triton(device):
        raise ModelError(
            f'determinism = "strict" on {device.type} needs the Triton kernels: pip install "outrider[gpu]"'
        )
    return determinism == "strict"


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"device is {name!r}, which torch cannot use here: {reason}") from None
