"""Draft models: what only guesses may be rounded further than a target."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from outrider.engine.models.checkpoint import WeightSource
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.llama import LlamaModel, open_weights
from outrider.engine.models.native import native_refusal, quantization_refusal
from outrider.kernels.linear import Quantization

_TRIED: tuple[Quantization, ...] = ("int4", "int8")


def load_draft(
    path: Path,
    quantization: str | None = "auto",
    *,
    dtype: str = "auto",
    device: str = "cpu",
    kv_dtype: str = "auto",
) -> LlamaModel:
    """Loads a draft model, output layer quantized as its layers are; see `LlamaModel.load` for other arguments.

    Args:
        path: a directory or a GGUF file.
        quantization: of all weights but the embedding: ``int8``, ``int4`` or None. ``auto`` is the smallest that the
            compiled decoder has for the model's sizes, and None where that does not run the model or the checkpoint is
            quantized.
        dtype: of the weights that are not quantized.
        device: of the model.
        kv_dtype: of keys and values in pages.

    Raises:
        ModelError: as `LlamaModel.load`.
    """
    given = None if quantization == "auto" else cast(Quantization | None, quantization)
    config, source = ModelConfig.load(path), open_weights(path, given)
    chosen = _smallest(config, source, device) if quantization == "auto" else given
    return LlamaModel.of(
        source, config, dtype=dtype, device=device, quantization=chosen, kv_dtype=kv_dtype, guesses=True
    )


def _smallest(config: ModelConfig, source: WeightSource, device: str) -> Quantization | None:
    if source.quantized or native_refusal(config, torch.float32, torch.device(device), None) is not None:
        return None
    return next((each for each in _TRIED if quantization_refusal(config, each) is None), None)
