"""Runs a step of the decoder in one call of the compiled decoder, on CPUs that support it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from outrider.kernels.backend import choice
from outrider.kernels.huge_pages import Arena
from outrider.models import rotary
from outrider.models.config import ModelConfig
from outrider.models.errors import ModelError
from outrider.models.quantization import AT_LOAD, codes_at_load
from outrider.models.weights import WeightLoader
from outrider.native.decoder import NativeDecoder
from outrider.native.library import NativeUnavailable, library
from outrider.native.packing import has_product
from outrider.native.quantized import QuantizedWeight, dequantized
from outrider.native.weights import DecoderShape, LayerWeights, Part, Product
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
    if quantization is not None and (refusal := _quantization_refusal(config, quantization)) is not None:
        return refusal
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
    embedding = _compiled(loader.embedding(), None)
    layers, norm = _layers(loader), loader.norm("model.norm.weight")
    output, threads = loader.output(embedding), torch.get_num_threads()
    return NativeDecoder(
        library(), _shape(config), loader.dtype, embedding, layers, norm, output, turns, threads, Arena().take
    )  # fmt: skip


def _quantization_refusal(config: ModelConfig, quantization: str) -> str | None:
    if quantization not in AT_LOAD:
        return f"its weights are to be {quantization}; only {' and '.join(AT_LOAD)} are compiled"
    for size in (config.hidden_size, config.heads * config.head_dim, config.intermediate_size):
        if size % AT_LOAD[quantization]:
            return f"{size} input features in {quantization}; they must be a multiple of {AT_LOAD[quantization]}"
    return None


def native_product(quantization: str | None, parts: Sequence[Part], inner: bool) -> Product:
    """A product of the compiled decoder.

    Weights in codes become bfloat16 if there are no compiled products for their form.

    Args:
        quantization: one of `AT_LOAD` for weights of layers that are not in codes, or None.
        parts: weights and biases.
        inner: whether a layer owns the product.
    """
    return Product(tuple(Part(_compiled(part.weight, quantization if inner else None), part.bias) for part in parts))


def _compiled(weight: Tensor | QuantizedWeight, quantization: str | None) -> Tensor | QuantizedWeight:
    if isinstance(weight, Tensor):
        return weight if quantization is None else codes_at_load(weight, quantization)
    return weight if has_product(library(), weight) else dequantized(weight, torch.bfloat16)


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
