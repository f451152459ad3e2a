"""Medusa heads in training: from the target's last state, each head guesses one token further ahead.

Medusa-1 (Cai et al., arXiv 2401.10774): the target is frozen, and the heads share its output layer.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from outrider.engine.models.config import ModelConfig
from outrider.training.drafters.learners import Learner, Sequence, Size, places
from outrider.training.drafters.losses import Result, Weights, distance
from outrider.training.drafters.teacher import Teacher
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional


class ResBlock(nn.Module):
    """The block x + SiLU(linear(x)); the identity before training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` [..., width] to the same shape."""
        return x + functional.silu(self.linear(x))


class Heads(nn.ModuleList):
    """The heads, under the published names: `{head}.{layer}.linear.weight` and `.bias`."""

    def __init__(self, count: int, layers: int, width: int) -> None:
        super().__init__(nn.Sequential(*(ResBlock(width) for _ in range(layers))) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """States [..., count, width] of all heads, of the target's [..., width]."""
        return torch.stack([head(x) for head in self], dim=-2)


class MedusaLearner(Learner):
    """Trains a head for each guess."""

    def __init__(self, config: ModelConfig, teacher: Teacher, layers: tuple[int, ...], size: Size, seed: int) -> None:
        self.guesses, self._teacher, self._config, self._layers = size.guesses, teacher, config, size.layers
        self._heads = Heads(size.guesses, size.layers, config.hidden_size).requires_grad_(False)
        self.tensors = {name: tensor.detach() for name, tensor in self._heads.named_parameters()}

    def loss(self, sequence: Sequence, weights: Weights, dice: torch.Generator, most: int) -> Result:
        """See `Learner`."""
        chosen, valid = places(sequence, self.guesses, dice, most)
        states = functional_call(self._heads, self.tensors, sequence.last[chosen - 1])
        at = chosen[:, None] + torch.arange(self.guesses, device=chosen.device)
        truth, known = self._teacher.truth(sequence.last, at), self._teacher.knows(sequence.ids, at)
        return distance(self._teacher.score(states), truth, valid, known, weights)

    def write(self, directory: Path) -> None:
        """See `Learner`."""
        write_heads(directory, self.tensors, self._layers, self._config.vocab_size)


def write_heads(directory: Path, tensors: dict[str, Tensor], layers: int, vocabulary: int, target: str = "") -> None:
    """Writes the published layout without `{head}.{layers}.weight`, the output layers, in bfloat16."""
    directory.mkdir(parents=True, exist_ok=True)
    held = {name: tensor.detach().cpu().to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    path = directory / "medusa_lm_head.safetensors"
    save_file(held, path, metadata={"format": "pt"})
    path.chmod(0o644)
    config = {
        "model_type": "medusa",
        "base_model_name_or_path": target,
        "hidden_size": len(held["0.0.linear.bias"]),
        "medusa_num_heads": 1 + max(int(name.split(".")[0]) for name in held),
        "medusa_num_layers": layers,
        "medusa_tie_lm_head": True,
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
