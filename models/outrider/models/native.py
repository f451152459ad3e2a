"""Runs a step of the decoder in one call of the compiled decoder, on CPUs that support it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from outrider.kernels.backend import choice
from outrider.kernels.huge_pages import Arena
from outrider.models import rotary
from outrider.models.config import ModelConfig
from outrider.models.errors import ModelError
from outrider.models.weights import WeightLoader
from outrider.native.decoder import NativeDecoder
from outrider.native.library import NativeUnavailable, library
from outrider.native.weights import DecoderShape, LayerWeights, Product


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
    if quantization is not None:
        return f"its weights are to be {quantization}"
    if (refusal := _shape(config).refusal(dtype)) is not None:
        return refusal
    try:
        library()
    except NativeUnavailable as error:
        return str(error)
    return None


def native_forward(loader: WeightLoader[Product]) -> NativeDecoder:
    """The compiled decoder with the weights of a checkpoint."""
    config = loader.config
    turns = rotary.turns(config.rope, config.head_dim, config.context_length).squeeze(1)
    embedding, layers, norm = loader.embedding(), _layers(loader), loader.norm("model.norm.weight")
    output, threads = loader.output(embedding), torch.get_num_threads()
    return NativeDecoder(
        library(), _shape(config), loader.dtype, embedding, layers, norm, output, turns, threads, Arena().take
    )  # fmt: skip


def _layers(loader: WeightLoader[Product]) -> Iterator[LayerWeights]:
    for index in range(loader.config.layers):
        name = f"model.layers.{index}"
        yield LayerWeights(
            loader.layer_norm(f"{name}.input_layernorm.weight"),
            loader.qkv(name),
            loader.head_norm(name),
            loader.attention_output(name),
            loader.layer_norm(f"{name}.post_attention_layernorm.weight"),
            loader.gate_up(name),
            loader.down(name),
        )


def _shape(config: ModelConfig) -> DecoderShape:
    return DecoderShape(
        config.hidden_size,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.intermediate_size,
        config.vocab_size,
        config.norm_eps,
    )
