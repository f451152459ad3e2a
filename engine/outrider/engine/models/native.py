"""Runs a step of the decoder in one call of the compiled decoder, on CPUs that support it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models import rotary
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.families.rope import RopeConfig
from outrider.engine.models.quantization import AT_LOAD, codes_at_load
from outrider.engine.models.weights import WeightLoader, rounded
from outrider.kernels.backend import choice
from outrider.kernels.huge_pages import Arena
from outrider.native.decoder import NativeDecoder
from outrider.native.library import NativeUnavailable, library
from outrider.native.packing import has_matmul
from outrider.native.quantized import QuantizedWeight, dequantized
from outrider.native.weights import DecoderShape, LayerWeights, Part, Projection
from torch import Tensor


def native_refusal(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, quantization: str | None
) -> str | None:
    """Why a model does not run on the compiled decoder; None if it does.

    Raises:
        ModelError: ``OUTRIDER_KERNELS`` is ``native``, but the model cannot run there.
    """
    kernels = choice()
    if kernels not in ("auto", "native"):
        return f"OUTRIDER_KERNELS is {kernels}"
    refusal = _refusal(config, dtype, device, quantization)
    if refusal is not None and kernels == "native":
        raise ModelError(f'OUTRIDER_KERNELS is "native", which cannot be: {refusal}')
    return refusal


def _refusal(config: ModelConfig, dtype: torch.dtype, device: torch.device, quantization: str | None) -> str | None:
    if device.type != "cpu":
        return f"the model is on {device}"
    if quantization is not None and (refusal := quantization_refusal(config, quantization)) is not None:
        return refusal
    if (refusal := _shape(config, dtype).refusal(dtype)) is not None:
        return refusal
    try:
        library()
    except NativeUnavailable as error:
        return str(error)
    return None


def native_forward(loader: WeightLoader[Projection]) -> NativeDecoder:
    """The compiled decoder with the weights of a checkpoint."""
    config = loader.config
    ropes = {config.rope_of(index) for index in range(config.layers)}
    tables = {rope: rotary.rope_table(rope, config.head_dim, config.context_length).squeeze(1) for rope in ropes}
    embedding = _compiled(loader.embedding(), None)
    layers, norm = _layers(loader, tables), loader.norm("model.norm.weight")
    output, threads = loader.output(embedding), torch.get_num_threads()
    shape, first = _shape(config, loader.dtype), tables[config.rope_of(0)]
    return NativeDecoder(
        library(), shape, loader.dtype, embedding, layers, norm, output, first, threads, Arena().take
    )  # fmt: skip


def quantization_refusal(config: ModelConfig, quantization: str) -> str | None:
    """Why the compiled decoder cannot have a model's weights quantized at load; None if it can."""
    if quantization not in AT_LOAD:
        return f"its weights are to be {quantization}; only {' and '.join(AT_LOAD)} are compiled"
    width = config.intermediate_size if config.experts is None else config.experts.intermediate_size
    for size in (config.hidden_size, config.heads * config.head_dim, config.intermediate_size, width):
        if size % AT_LOAD[quantization]:
            return f"{size} input features in {quantization}; they must be a multiple of {AT_LOAD[quantization]}"
    return None


def native_projection(quantization: str | None, parts: Sequence[Part], inner: bool) -> Projection:
    """A projection of the compiled decoder.

    Quantized weights become bfloat16 if there are no compiled projections for their form.

    Args:
        quantization: one of `AT_LOAD` for weights of layers that are not quantized, or None.
        parts: weights and biases.
        inner: whether a layer owns the projection.
    """
    return Projection(tuple(Part(_compiled(part.weight, quantization if inner else None), part.bias) for part in parts))


def _compiled(weight: Tensor | QuantizedWeight, quantization: str | None) -> Tensor | QuantizedWeight:
    if isinstance(weight, Tensor):
        return weight if quantization is None else codes_at_load(weight, quantization)
    return weight if has_matmul(library(), weight) else dequantized(weight, torch.bfloat16)


def _layers(loader: WeightLoader[Projection], tables: Mapping[RopeConfig, Tensor]) -> Iterator[LayerWeights]:
    config = loader.config
    for index in range(config.layers):
        name = f"model.layers.{index}"
        after_attention, after_feed_forward = loader.norms_after(name)
        shared: dict[str, Any] = {
            "attention_norm": loader.attention_norm(name),
            "qkv": loader.qkv(name),
            "head_norm": loader.head_norm(name),
            "key_balance": loader.key_balance(name),
            "output": loader.attention_output(name),
            "after_attention": after_attention,
            "after_feed_forward": after_feed_forward,
            "window": config.windows[index],
            "rope": tables[config.rope_of(index)],
        }
        if config.experts is None or not config.has_experts(index):
            norm = loader.feed_forward_norm(name)
            yield LayerWeights(**shared, feed_forward_norm=norm, gate_up=loader.gate_up(name), down=loader.down(name))
            continue
        names, norm = loader.expert_names(name), loader.feed_forward_norm(name, folds=False)
        router, experts = loader.router(names, config.experts), loader.experts(names, config.experts)
        yield LayerWeights(
            **shared, feed_forward_norm=norm, gate_up=None, down=None, router=router, experts=experts
        )  # fmt: skip


def _shape(config: ModelConfig, dtype: torch.dtype) -> DecoderShape:
    experts = config.experts
    shape = DecoderShape(
        config.hidden_size,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.intermediate_size,
        config.vocab_size,
        config.norm_eps,
        query_scale=config.query_scale,
        embedding_scale=rounded(config.embedding_scale, dtype),
        gelu=config.activation == "gelu_tanh",
    )
    if experts is None:
        return shape
    return replace(
        shape,
        experts=experts.count,
        active=experts.active,
        expert_intermediate=experts.intermediate_size,
        normed=experts.normed,
    )
