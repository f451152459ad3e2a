"""A draft model in training: a small model that learns the target's distribution in the target's own answers.

DistillSpec (Zhou et al., arXiv 2310.08461), with the losses of heads. All weights are trained.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import torch
from outrider.engine.models.config import ModelConfig
from outrider.engine.text import Tokenizer
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.learners import Learner, Sequence, places
from outrider.training.drafters.losses import Result, Weights, distance
from outrider.training.drafters.teacher import Teacher
from torch import nn
from torch.func import functional_call

_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_*")


def check_draft(directory: Path, vocabulary: str, size: int) -> None:
    """Refuses, by `TrainingError`, what `DraftLearner` cannot begin with for a target.

    Args:
        directory: of the small model.
        vocabulary: fingerprint of the target's vocabulary, which the small model has to have.
        size: of that vocabulary.
    """
    if find_spec("transformers") is None:
        raise TrainingError("draft models are trained with transformers: pip install 'outrider[train]'")
    if not (directory / "model.safetensors").exists() and not (directory / "model.safetensors.index.json").exists():
        raise TrainingError(f"{directory} is no directory with model.safetensors: a draft model begins with one")
    ids = ModelConfig.load(directory).vocab_size
    if Tokenizer.load(directory).fingerprint != vocabulary or ids != size:
        raise TrainingError(f"{directory} has another vocabulary ({ids:,} ids) than the target ({size:,})")


class DraftLearner(Learner):
    """Goes on with the training of a small model.

    Args:
        directory: of the small model, which `check_draft` takes.
        teacher: of the whole vocabulary.
        guesses: tokens that are guessed ahead where the model is judged.
    """

    rate = 2e-5

    def __init__(self, directory: Path, teacher: Teacher, guesses: int) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # type: ignore[no-untyped-call] # a run has a bar of its own
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)
        self.guesses, self._directory, self._teacher = guesses, directory, teacher
        self._model = model.requires_grad_(False)
        nn.Module.to(model, teacher.output.device)
        self.tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def loss(self, sequence: Sequence, weights: Weights, dice: torch.Generator, most: int) -> Result:
        """See `Learner`. A guess depends on the tokens before it alone, so that each is computed once."""
        chosen, valid = places(sequence, self.guesses, dice, most)
        at = chosen[:, None] + torch.arange(self.guesses, device=chosen.device)
        rows, inverse = torch.unique(at[valid], return_inverse=True)
        asked = {"input_ids": sequence.ids[None], "logits_to_keep": rows, "use_cache": False}
        scores = functional_call(self._model, self.tensors, (), asked).logits[0]
        truth, every = self._teacher.truth(sequence.last, rows), torch.ones_like(rows, dtype=torch.bool)[:, None]
        each = distance(scores[:, None], truth[:, None], every, every, weights)
        right = torch.zeros_like(valid)
        right[valid] = each.runs[inverse] > 0
        count = valid.sum(0)
        return Result(each.loss, right.cumprod(-1).sum(-1), each.shared / max(len(rows), 1) * count, count)

    def write(self, directory: Path) -> None:
        """Writes the model as transformers does, in bfloat16, with the tokenizer that it came with."""
        self._model.load_state_dict(self.tensors, strict=False)
        nn.Module.to(self._model, torch.bfloat16)
        self._model.save_pretrained(directory)
        for path in (path for pattern in _TOKENIZER for path in self._directory.glob(pattern)):
            shutil.copyfile(path, directory / path.name)
