"""Medusa-1 heads: Cai et al. 2024, "Medusa" (arXiv 2401.10774), on a frozen target.

Head i maps the target's last hidden state at a token to scores of the token i + 2 places further on: residual blocks
``x + SiLU(W x + b)``, then an output layer, the head's or the target's.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.fields import Fields
from outrider.engine.speculation.drafters.drafter import Target
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import silu

_SAFE, _PICKLED = "medusa_lm_head.safetensors", "medusa_lm_head.pt"
_BLOCK = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")


class MedusaHeads:
    """All heads of a directory, on the target's device and in its dtype.

    Attributes:
        count: number of heads.
        own_outputs: whether each head has its own output layer.
    """

    def __init__(
        self, where: Path, tensors: Mapping[str, Tensor], layers: int, target: Target, quantization: str | None = None
    ) -> None:
        self.count = 1 + max((int(name.split(".")[0]) for name in tensors if _BLOCK.fullmatch(name)), default=-1)
        self.own_outputs = any(f"{head}.{layers}.weight" in tensors for head in range(self.count))
        size, vocabulary = target.config.hidden_size, target.config.vocab_size
        self._dtype, self._tensors = target.dtype, _Tensors(where, tensors, target)
        self._weights = [self._blocks(f"{layer}.linear.weight", size, size).mT for layer in range(layers)]
        self._biases = [self._blocks(f"{layer}.linear.bias", size)[:, None] for layer in range(layers)]
        names = [f"{head}.{layers}.weight" for head in range(self.count)] if self.own_outputs else []
        self._outputs = [target.beside(self._tensors.take(name, vocabulary, size), quantization) for name in names]
        self._shared = target.guessing_output(quantization)
        self._tensors.finish()

    @classmethod
    def load(cls, directory: Path, target: Target, quantization: str | None = None) -> MedusaHeads:
        """Loads heads from a directory with config.json and medusa_lm_head; sizes must fit ``target``.

        ``quantization`` is of output layers beside a compiled target.
        torch's loader of plain tensors reads a ``.pt`` file, so that no code in the file runs.

        Raises:
            ModelError: a file or tensor is missing, or does not fit the target.
        """
        config = Fields.read(directory / "config.json")
        for name, ours in (("hidden_size", target.config.hidden_size), ("vocab_size", target.config.vocab_size)):
            if config.values.get(name) is not None and config.count(name) != ours:
                raise config.wrong(name, f"the target's, {ours}")
        path, tensors = _read(directory)
        heads = cls(path, tensors, config.count("medusa_num_layers"), target, quantization)
        expected = config.count("medusa_num_heads")
        if heads.count < expected:
            raise ModelError(f"{path} holds {heads.count} heads; its config.json asks for {expected}")
        return heads

    @torch.inference_mode()
    def __call__(self, hidden: Tensor) -> Tensor:
        """Scores of each head, float32 [count, n, vocab_size], for the target's hidden states [n, hidden_size]."""
        x = hidden.to(self._dtype).expand(self.count, -1, -1)
        for weight, bias in zip(self._weights, self._biases, strict=True):
            x = x + silu(torch.baddbmm(bias, x, weight))
        if self.own_outputs:
            scores = [out(rows.to(out.dtype)).float() for rows, out in zip(x, self._outputs, strict=True)]
            return torch.stack(scores)
        return self._shared(x.flatten(0, 1).float()).view(*x.shape[:2], -1)

    def _blocks(self, name: str, *shape: int) -> Tensor:
        return torch.stack([self._tensors.take(f"{head}.{name}", *shape) for head in range(self.count)])


class _Tensors:
    """Checks and returns a file's tensors; `finish` refuses tensors that are left."""

    def __init__(self, where: Path, tensors: Mapping[str, Tensor], target: Target) -> None:
        self._where, self._tensors, self._target = where, dict(tensors), target
        if not any(_BLOCK.fullmatch(name) for name in tensors):
            raise ModelError(f"{where} holds no Medusa heads: no tensor is called 0.0.linear.weight")

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelError(f"{self._where} has no tensor {name}")
        if tuple(tensor.shape) != shape:
            actual, expected = list(tensor.shape), list(shape)
            raise ModelError(f"{self._where}: {name} has shape {actual}; for this target it must be {expected}")
        if not tensor.is_floating_point():
            raise ModelError(f"{self._where}: {name} has dtype {tensor.dtype}; it must be a floating-point one")
        return tensor.to(self._target.device, self._target.dtype)

    def finish(self) -> None:
        if self._tensors:
            raise ModelError(f"{self._where} has a tensor {min(self._tensors)} that is no part of Medusa-1 heads")


def _read(directory: Path) -> tuple[Path, dict[str, Tensor]]:
    safe, pickled = directory / _SAFE, directory / _PICKLED
    if not safe.is_file() and not pickled.is_file():
        raise ModelError(f"{directory} has neither {_SAFE} nor {_PICKLED}")
    path = safe if safe.is_file() else pickled
    try:
        tensors = load_file(path) if path is safe else torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ModelError(f"{path} cannot be read as plain tensors: {str(error).splitlines()[0]}") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ModelError(f"{path} holds something else than named tensors")
    return path, tensors
