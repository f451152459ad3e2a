"""A model with random weights that are made on the device, and a tokenizer of its vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.fields import Fields
from outrider.engine.models.llama import LlamaModel
from outrider.kernels.shapes import FLOAT8_BLOCKS
from outrider.native.quantized import QuantizedWeight, Quants, QuantsInMemory
from torch import Tensor

from gpu_proof.sizes import Sizes


class RandomWeights:
    """A `outrider.engine.models.checkpoint.WeightSource` without a file: the same weights at each load.

    With ``floats``, layers' weights are in eight-bit floats, as DeepSeek-V3 and Qwen3 publish them.
    """

    headless = False

    def __init__(self, dtype: torch.dtype, device: torch.device, *, floats: bool) -> None:
        self._dtype, self._device, self.quantized = dtype, device, floats
        self._random = torch.Generator(device).manual_seed(0)

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name: each that a model asks for."""
        return True

    def take(self, name: str, shape: Sequence[int]) -> Tensor | QuantizedWeight:
        """A tensor of ``shape``: ones for a norm, else noise that keeps the size of its input."""
        if name.endswith("norm.weight"):
            return torch.ones(*shape, dtype=self._dtype, device=self._device)
        noise = torch.randn(*shape, generator=self._random, dtype=self._dtype, device=self._device)
        if self.quantized and name.endswith("_proj.weight"):
            groups = -(-shape[1] // FLOAT8_BLOCKS.group)
            scales = torch.full((shape[0], groups), shape[1] ** -0.5, device=self._device)
            return QuantsInMemory(FLOAT8_BLOCKS, Quants(noise.to(torch.float8_e4m3fn).view(torch.uint8), scales))
        return noise.mul_(shape[-1] ** -0.5)

    def finish(self, ignored: Iterable[str] = ()) -> None:
        """Nothing is left over."""


def random_model(sizes: Sizes, *, graphs: bool, floats: bool = False) -> LlamaModel:
    """The strict model of ``sizes``; loading it proves that its rows do not depend on their batch."""
    dtype: torch.dtype = getattr(torch, sizes.dtype)
    config = ModelConfig.of(Fields("config.json", sizes.config))
    source = RandomWeights(dtype, sizes.device, floats=floats)
    device = sizes.device.type
    return LlamaModel.of(source, config, dtype=sizes.dtype, device=device, determinism="strict", graphs=graphs)


def save_tokenizer(sizes: Sizes, directory: Path) -> Path:
    """Writes a tokenizer of bytes, filled up to the model's vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    size = int(sizes.config["vocab_size"])
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    words += [f"word{index}" for index in range(size - len(words))]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps(sizes.config))
    return directory
