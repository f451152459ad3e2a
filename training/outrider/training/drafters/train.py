"""A whole run: answers, draft vocabulary, training, the files of the drafter, and its figures."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
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
from outrider.training.drafters.card import card
from outrider.training.drafters.draft_learner import DraftLearner, check_draft
from outrider.training.drafters.eagle_learner import EagleLearner
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.fit import Plan, Trainer
from outrider.training.drafters.learners import Learner, Size
from outrider.training.drafters.medusa_learner import MedusaLearner
from outrider.training.drafters.prompts import Prompt
from outrider.training.drafters.shelf import Entry, Shelf
from outrider.training.drafters.teacher import Teacher, frequent

KINDS: dict[str, Callable[..., Learner]] = {"dspark": BlockLearner, "eagle3": EagleLearner, "medusa": MedusaLearner}
"""Learners of heads."""
DRAFT = "draft"
"""The kind of a draft model."""
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
        out: directory of the drafter; checkpoint and log are in its ``training``.
        data: directory of the answers.
        draft: directory of the model that a draft model begins with; None for heads.
        tokens: of answers to learn from, and to ask for if there are fewer.
        disk: bytes of the answers with their states.
        vocabulary: ids that a head guesses; those of the target if it has fewer.
        resume: whether to go on from the checkpoint.
        minutes: for the whole run; 0 for no limit.
        measured: held-out prompts of a kind that are answered at the end.
        measured_tokens: most tokens of such an answer.
    """

    settings: EngineSettings
    out: Path
    data: Path
    kind: str = "eagle3"
    draft: Path | None = None
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
    """Trains a drafter; returns its card.

    Raises:
        TrainingError: an input is wrong, or there is nothing to learn from.
        SettingsError: the target cannot be used.
    """
    if recipe.kind not in (*KINDS, DRAFT):
        raise TrainingError(f"there is no kind {recipe.kind}; drafters are of kind {', '.join((*KINDS, DRAFT))}")
    if (recipe.draft is None) == (recipe.kind == DRAFT):
        raise TrainingError("--kind draft needs --draft, the model to begin with; other kinds have none")
    if not recipe.resume and (recipe.out / "training" / "checkpoint.pt").exists():
        raise TrainingError(f"{recipe.out} holds a run: --resume goes on with it; else name another folder")
    asked = prompts.load(recipe.prompts, recipe.plan.seed, max(recipe.tokens // _PROMPT_OF, 256))
    return _Run(recipe, asked, watch).whole()


class _Run:
    """The stages of a run, and what they share."""

    def __init__(self, recipe: Recipe, asked: list[Prompt], watch: Watch) -> None:
        begun, minutes = time.monotonic(), recipe.minutes or float("inf")
        self._ends = [begun + 60 * minutes * share for share in (_ASKING, _TRAINING, 1.0)]
        self._recipe, self._asked, self._watch = recipe, asked, watch
        self._target = Target.load(replace(recipe.settings, drafters=()))
        self._model, self._tokenizer = self._target.runner.model, self._target.tokenizer
        size = self._model.config.vocab_size
        self._vocabulary = min(recipe.vocabulary, size) if recipe.draft is None else size
        if recipe.draft is not None:
            check_draft(recipe.draft, self._tokenizer.fingerprint, size)

    def whole(self) -> str:
        """All stages; returns the card."""
        recipe, out = self._recipe, self._recipe.out
        shelf = self._answers()
        learnt, held = _chosen(shelf, recipe.tokens)
        learner = self._learner(shelf, learnt)
        trainer = self._trained(learner, shelf, learnt)
        kinds = sorted({entry.kind for entry in held})
        qualities = {kind: trainer.quality([entry for entry in held if entry.kind == kind]) for kind in kinds}
        trainer.note(**{kind: asdict(quality) for kind, quality in qualities.items()})
        learner.write(out)
        facts = {
            "tokens": sum(entry.length - entry.prompt for entry in learnt),
            "answers": len(learnt),
            "steps": trainer.steps,
            "parameters": sum(tensor.numel() for tensor in learner.tensors.values()) / 1e6,
            "vocabulary": self._vocabulary,
            "seed": recipe.plan.seed,
            "device": self._model.device,
            "machine": platform.machine(),
        }
        text = card(recipe.kind, self._target.name, facts, qualities, self._figures() if recipe.measured else "")
        (out / "README.md").write_text(text)
        integrity.renew(out)
        return text

    def _answers(self) -> Shelf:
        """The shelf with as many tokens of answers as the recipe asks for, or as there was time for."""
        recipe, shelf = self._recipe, _shelf(self._recipe, self._target, self._asked)
        if shelf.answered < recipe.tokens:
            asking = Asking(recipe.tokens, recipe.answer, deadline=self._ends[0])
            record(
                self._target, self._asked, shelf, asking, lambda done: self._watch("answers", done, recipe.tokens, "")
            )
        shelf.sort()
        return shelf

    def _learner(self, shelf: Shelf, learnt: list[Entry]) -> Learner:
        recipe, model = self._recipe, self._model
        targets = _vocabulary(shelf, learnt, self._vocabulary, model)
        teacher = Teacher(model, targets, _mask_token(self._tokenizer, model))
        if recipe.draft is not None:
            return DraftLearner(recipe.draft, teacher, recipe.size.guesses)
        layers = recorded_layers(model.config.layers)[:-1]
        return KINDS[recipe.kind](model.config, teacher, layers, recipe.size, recipe.plan.seed)

    def _trained(self, learner: Learner, shelf: Shelf, learnt: list[Entry]) -> Trainer:
        recipe, device = self._recipe, self._model.device
        plan = replace(recipe.plan, deadline=self._ends[1])
        trainer = Trainer(learner, shelf, learnt, plan, recipe.out / "training", device)
        if recipe.resume and trainer.has_checkpoint:
            trainer.resume()
        else:
            trainer.start(lambda done, passes: self._watch("start", done, passes, ""))
        trainer.run(lambda done, steps, loss: self._watch("training", done, steps, f"loss {loss:.3f}"))
        return trainer

    def _figures(self) -> str:
        """The table of figures of the written drafter."""
        recipe = self._recipe
        settings = measure.alone(replace(recipe.settings, max_running=1), str(recipe.out))
        plain = replace(settings, drafters=(), options={})
        target = Target.over(self._model, self._tokenizer, self._target.directory, plain)
        wanted = measure.held_out(self._asked, recipe.measured)
        figures = measure.measure(
            target,
            settings,
            wanted,
            recipe.measured_tokens,
            lambda done, whole: self._watch("figures", done, whole, ""),
            self._ends[2],
        )
        return measure.table(figures, target.cost)


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
