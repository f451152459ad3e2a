"""A whole run: answers, draft vocabulary, training, the files of the head, and its figures."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.settings import EngineSettings
from outrider.engine.store import integrity
from outrider.engine.target import Target
from outrider.engine.text import Tokenizer
from outrider.training.drafters import measure, prompts
from outrider.training.drafters.answers import Asking, record, recorded_layers
from outrider.training.drafters.block_learner import BlockLearner
from outrider.training.drafters.card import Run, card
from outrider.training.drafters.eagle_learner import EagleLearner
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.fit import Plan, Trainer
from outrider.training.drafters.learners import Learner, Size
from outrider.training.drafters.medusa_learner import MedusaLearner
from outrider.training.drafters.prompts import Prompt
from outrider.training.drafters.shelf import Entry, Shelf
from outrider.training.drafters.teacher import Teacher, frequent

KINDS: dict[str, Callable[..., Learner]] = {"dspark": BlockLearner, "eagle3": EagleLearner, "medusa": MedusaLearner}
_ASKING, _TRAINING = 0.6, 0.92
"""Shares of the minutes that are over when asking and training end."""
_PROMPT_OF = 64
"""A prompt for about so many tokens of answers, at least: more prompts than are answered cost nothing."""

Watch = Callable[[str, float, float, str], None]
"""Is told a stage, how much of it is done, its whole, and a remark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All inputs of a run.

    Attributes:
        out: directory of the head; checkpoint and log are in its ``training``.
        data: directory of the answers.
        tokens: of answers to learn from, and to ask for if there are fewer.
        disk: bytes of the answers with their states.
        vocabulary: ids that the head guesses; those of the target if it has fewer.
        resume: whether to go on from the checkpoint.
        minutes: for the whole run; 0 for no limit.
        measured: held-out prompts of a kind that are answered at the end.
        measured_tokens: most tokens of such an answer.
    """

    settings: EngineSettings
    out: Path
    data: Path
    kind: str = "dspark"
    prompts: Path | None = None
    tokens: int = 200_000
    answer: int = 256
    disk: float = 8e9
    vocabulary: int = 16384
    size: Size = field(default_factory=Size)
    plan: Plan = field(default_factory=Plan)
    resume: bool = False
    minutes: float = 0.0
    measured: int = 6
    measured_tokens: int = 96


def run(recipe: Recipe, watch: Watch) -> str:
    """Trains a head; returns its card.

    Raises:
        TrainingError: an input is wrong, or there is nothing to learn from.
        SettingsError: the target cannot be used.
    """
    if recipe.kind not in KINDS:
        raise TrainingError(f"there is no kind {recipe.kind}; heads are of kind {', '.join(KINDS)}")
    begun = time.monotonic()
    ends = [
        begun + 60 * recipe.minutes * share if recipe.minutes else float("inf") for share in (_ASKING, _TRAINING, 1)
    ]
    if not recipe.resume and (recipe.out / "training" / "checkpoint.pt").exists():
        raise TrainingError(f"{recipe.out} holds a run: --resume goes on with it; else name another folder")
    asked = prompts.load(recipe.prompts, recipe.plan.seed, max(recipe.tokens // _PROMPT_OF, 256))
    target = Target.load(replace(recipe.settings, drafters=()))
    model, tokenizer = target.runner.model, target.tokenizer
    shelf = _shelf(recipe, target, asked)
    short = recipe.tokens - shelf.answered
    if short > 0:
        asking = Asking(recipe.tokens, recipe.answer, deadline=ends[0])
        record(target, asked, shelf, asking, lambda done: watch("answers", done, recipe.tokens, ""))
    shelf.sort()
    learnt, held = _chosen(shelf, recipe.tokens)
    teacher = Teacher(model, _vocabulary(shelf, learnt, recipe.vocabulary, model), _mask_token(tokenizer, model))
    learner = KINDS[recipe.kind](
        model.config, teacher, recorded_layers(model.config.layers)[:-1], recipe.size, recipe.plan.seed
    )
    trainer = Trainer(
        learner, shelf, learnt, replace(recipe.plan, deadline=ends[1]), recipe.out / "training", model.device
    )
    if recipe.resume and trainer.has_checkpoint:
        trainer.resume()
    trainer.run(lambda done, steps, loss: watch("training", done, steps, f"loss {loss:.3f}"))
    by_kind = {
        kind: trainer.quality([entry for entry in held if entry.kind == kind])
        for kind in sorted({entry.kind for entry in held})
    }
    trainer.note(**{kind: {"length": each.length, "loss": each.loss} for kind, each in by_kind.items()})
    learner.write(recipe.out)
    figures, cost = [], target.cost
    if recipe.measured:
        settings = measure.alone(replace(recipe.settings, max_running=1), str(recipe.out))
        again = Target.over(model, tokenizer, target.directory, replace(settings, drafters=(), options={}))
        cost = again.cost
        wanted = measure.held_out(asked, recipe.measured)
        figures = measure.measure(
            again, settings, wanted, recipe.measured_tokens, lambda n, all_: watch("figures", n, all_, ""), ends[2]
        )
    text = card(
        Run(
            recipe.kind,
            target.name,
            _counted(learnt),
            len(learnt),
            trainer.steps,
            sum(tensor.numel() for tensor in learner.tensors.values()),
            len(teacher.targets),
            recipe.plan.seed,
            platform.machine(),
            str(model.device),
            by_kind,
            measure.table(figures, cost) if figures else "",
        )
    )
    (recipe.out / "README.md").write_text(text)
    integrity.renew(recipe.out)
    return text


def _shelf(recipe: Recipe, target: Target, asked: list[Prompt]) -> Shelf:
    config = target.runner.model.config
    digest = sha256(repr([(prompt.kind, prompt.said) for prompt in asked[:256]]).encode()).hexdigest()
    about = {
        "target": target.tokenizer.fingerprint,
        "shape": [config.layers, config.hidden_size, config.vocab_size],
        "dtype": target.dtype,
        "prompts": digest,
        "seed": recipe.plan.seed,
        "answer": recipe.answer,
    }
    return Shelf(recipe.data, about, len(recorded_layers(config.layers)), config.hidden_size, recipe.disk)


def _chosen(shelf: Shelf, tokens: int) -> tuple[list[Entry], list[Entry]]:
    """The sequences to learn from, in the order of their prompts up to so many tokens of answers; the held-out ones."""
    learnt, held, total = [], [], 0
    for entry in shelf.entries:
        if entry.held_out:
            held.append(entry)
        elif total < tokens:
            learnt.append(entry)
            total += entry.length - entry.prompt
    return learnt, held


def _counted(entries: list[Entry]) -> int:
    return sum(entry.length - entry.prompt for entry in entries)


def _vocabulary(shelf: Shelf, learnt: list[Entry], most: int, model: LlamaModel) -> torch.Tensor:
    """The target's most frequent ids in its answers, then those in the prompts."""
    size = model.config.vocab_size
    said, asked = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
    for entry in learnt:
        ids = shelf.ids(entry)
        said += torch.bincount(ids[entry.prompt :], minlength=size)
        asked += torch.bincount(ids[: entry.prompt], minlength=size)
    return frequent(said * (int(asked.max()) + 1) + asked, min(most, size))


def _mask_token(tokenizer: Tokenizer, model: LlamaModel) -> int:
    """An id that no text has, or the end of text where there is none."""
    spare = model.config.vocab_size - 1
    if tokenizer.vocabulary_size <= spare:
        return spare
    return min(tokenizer.eos_token_ids, default=0)
