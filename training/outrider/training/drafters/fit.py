"""The training loop: AdamW (arXiv 1711.05101) on sequences of the shelf, with checkpoints that a run goes on from."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import torch
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.learners import Learner, Told
from outrider.training.drafters.learners import Sequence as Said
from outrider.training.drafters.losses import Weights
from outrider.training.drafters.shelf import Entry, Shelf
from torch import Tensor

_START_TOKENS = 100_000
"""Of the sequences that a start is solved from; more of them take longer and make it little better (decision 83)."""
_TIMED = 4
"""Steps after which the number of steps follows their time where there is a deadline; the first one is slower."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a head is trained.

    Attributes:
        epochs: times that each sequence is learnt from.
        batch: sequences of a step.
        most: tokens of a sequence to guess behind in a step.
        window: tokens of a sequence that are read, from its first one on; bounds memory.
        rate: highest step size of AdamW, 0 for that of the kind; it rises over `warmup` of the steps and falls to 0 (as
            a cosine).
        deadline: when training ends, in seconds of `time.monotonic`.
        save_s: seconds between checkpoints.
    """

    epochs: int = 4
    batch: int = 2
    most: int = 128
    window: int = 768
    rate: float = 0.0
    warmup: float = 0.04
    weights: Weights = field(default_factory=Weights)
    deadline: float = float("inf")
    save_s: float = 120.0
    seed: int = 0


@dataclass(slots=True)
class Quality:
    """How well a head guesses what the target has said, without running the engine.

    Attributes:
        loss: mean of the loss.
        length: tokens a step of an answer whose every guess is verified: it goes on behind the tokens that were right.
        shared: by place, the probability that head and target have in common: acceptance at temperature 1.
    """

    loss: float
    length: float
    shared: list[float]


class Trainer:
    """Trains a learner on sequences of a shelf.

    Args:
        learner: what is trained.
        shelf: holds the sequences.
        entries: those to learn from, in an order that does not depend on timing.
        plan: how.
        directory: for the checkpoint and the log.
        device: of the learner's tensors.

    Attributes:
        step: steps that are done.
        steps: steps to do; fewer than planned where there is a deadline.
    """

    def __init__(
        self,
        learner: Learner,
        shelf: Shelf,
        entries: Sequence[Entry],
        plan: Plan,
        directory: Path,
        device: torch.device,
    ) -> None:
        if not entries:
            raise TrainingError("there are no answers to learn from: ask for more tokens")
        self._learner, self._shelf, self._entries, self._plan, self._device = learner, shelf, entries, plan, device
        learner.tensors = {name: t.to(device).requires_grad_() for name, t in learner.tensors.items()}
        self._rate = plan.rate or learner.rate
        self._optimizer = torch.optim.AdamW(learner.tensors.values(), self._rate, (0.9, 0.95), weight_decay=0.0)
        self._file, self._log = directory / "checkpoint.pt", directory / "log.jsonl"
        self._planned = plan.epochs * math.ceil(len(entries) / plan.batch)
        self.step, self.steps = 0, self._planned
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self._file.exists()

    def start(self, watch: Told) -> None:
        """Solves for the tensors to begin with and writes a checkpoint; ``watch`` is told the passes done, and all."""
        ends = accumulate(entry.length for entry in self._entries)
        some = [entry for entry, end in zip(self._entries, ends, strict=True) if end - entry.length < _START_TOKENS]
        self._learner.start(lambda: map(self._read, some), watch)
        self.save()

    def resume(self) -> None:
        """Goes on from the checkpoint, also where a deadline ended the run.

        Without deadlines, the rest of the run gives the same bits as one that was not broken off.
        """
        saved = torch.load(self._file, weights_only=True)
        shapes = {name: tensor.shape for name, tensor in saved["tensors"].items()}
        if shapes != {name: tensor.shape for name, tensor in self._learner.tensors.items()}:
            raise TrainingError(f"{self._file} is of a head of another kind or size: resume with the same options")
        with torch.no_grad():
            for name, tensor in self._learner.tensors.items():
                tensor.copy_(saved["tensors"][name])
        self._optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]

    def run(self, watch: Callable[[int, int, float], None]) -> None:
        """Trains to the end; ``watch`` is told the steps done, all steps, and the loss."""
        saved, begun = time.monotonic(), self.step
        started = [saved]
        while self.step < self.steps:
            loss = self._update()
            self.step += 1
            started.append(time.monotonic())
            if self.step - begun >= _TIMED:
                self.fit_deadline((started[-1] - started[1]) / (self.step - begun - 1))
            watch(self.step, self.steps, loss)
            if started[-1] - saved > self._plan.save_s:
                saved = started[-1]
                self.save()
        self.save()

    def save(self) -> None:
        """Writes the checkpoint."""
        state = {
            "tensors": {name: tensor.detach() for name, tensor in self._learner.tensors.items()},
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
        }
        partial = self._file.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self._file)

    @torch.no_grad()
    def quality(self, entries: Sequence[Entry]) -> Quality:
        """How well the head guesses in answers of the shelf."""
        losses, tokens, steps = list[float](), 0, 0
        shared, count = torch.zeros(self._learner.guesses), torch.zeros(self._learner.guesses)
        for entry in entries:
            found = self._learner.loss(self._read(entry), self._plan.weights, torch.Generator(), entry.length)
            losses.append(float(found.loss))
            shared += found.shared.cpu()
            count += found.count.cpu()
            tokens += len(found.runs)
            steps += _steps(found.runs.tolist())
        return Quality(
            sum(losses) / max(len(losses), 1), tokens / max(steps, 1), (shared / count.clamp(min=1)).tolist()
        )

    def note(self, **values: object) -> None:
        """Adds a line to the log."""
        with self._log.open("a") as file:
            file.write(json.dumps({"step": self.step, **values}) + "\n")

    def fit_deadline(self, step_s: float) -> None:
        """Plans as many steps of ``step_s`` seconds as there is time for, up to those of the plan."""
        left = self._plan.deadline - time.monotonic()
        if left < float("inf"):
            self.steps = min(self._planned, self.step + max(int(left / step_s), 0))

    def _update(self) -> float:
        plan, total = self._plan, 0.0
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * self._scale()
        self._optimizer.zero_grad()
        batch = self._batch()
        for place, entry in enumerate(batch):
            dice = torch.Generator().manual_seed((plan.seed << 40) + (self.step << 8) + place)
            loss = self._learner.loss(self._read(entry), plan.weights, dice, plan.most).loss / len(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self._learner.tensors.values(), 1.0)
        self._optimizer.step()
        return total

    def _scale(self) -> float:
        done, warm = self.step / self.steps, max(1.0, self._plan.warmup * self.steps)
        return min((self.step + 1) / warm, 0.5 * (1 + math.cos(math.pi * done)))

    def _batch(self) -> list[Entry]:
        """The sequences of this step: a part of the epoch's order."""
        count, size = len(self._entries), self._plan.batch
        epoch, place = divmod(self.step, math.ceil(count / size))
        dice = torch.Generator().manual_seed(self._plan.seed * 1_000_003 + epoch)
        order = torch.randperm(count, generator=dice).tolist()
        return [self._entries[index] for index in order[place * size : (place + 1) * size]]

    def _read(self, entry: Entry) -> Said:
        ids, states = self._shelf.ids(entry)[: self._plan.window], self._shelf.states(entry)[: self._plan.window - 1]
        parts: tuple[Tensor, ...] = (ids, states[:, :-1], states[:, -1])
        ids, states, last = (part.to(self._device) for part in parts)
        return Said(ids, entry.prompt, states, last)


def _steps(runs: Sequence[int]) -> int:
    """Steps of an answer, by the guesses that are right behind each of its tokens."""
    place = steps = 0
    while place < len(runs):
        place, steps = place + 1 + runs[place], steps + 1
    return steps
