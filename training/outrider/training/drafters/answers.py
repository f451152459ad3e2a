"""The target answers prompts, through the engine, and a recording drafter keeps ids and states of what it says."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch
from outrider.engine import LLM, SamplingParams
from outrider.engine.errors import EngineStopped, RequestError
from outrider.engine.library.streams import Stream
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import Drafter, DraftTree, Opening, Traits
from outrider.engine.speculation.policy.drafter_policy import AskAlways
from outrider.engine.speculation.policy.guessing import Guessing, TargetView
from outrider.engine.target import Target
from outrider.training.drafters.prompts import Prompt
from outrider.training.drafters.shelf import Shelf
from torch import Tensor

_POLL_S = 0.2


def recorded_layers(layers: int) -> tuple[int, ...]:
    """The states to keep of a target of so many layers (`Traits.layers`): EAGLE-3's low, middle and high, and the last.

    The last one, behind the last norm, gives the target's logits.
    """
    low = {min(2, layers), layers // 2, max(layers - 3, 0)}
    return (*sorted(low), layers + 1)


@dataclass(slots=True)
class _Taking:
    number: int
    prompt: int
    tokens: list[int]
    states: list[Tensor] = field(default_factory=list)


class Recorder(Drafter):
    """Guesses nothing; writes ids and states of every sequence to a shelf when it ends. A request's seed is its number.

    Attributes:
        full: whether the shelf had no room for a sequence.
        taking: the sequences under way.
    """

    name = "recorder"

    def __init__(self, layers: tuple[int, ...], prompts: Sequence[Prompt], shelf: Shelf) -> None:
        self.traits = Traits(layers=layers)
        self._prompts, self._shelf, self.full = prompts, shelf, False
        self.taking: dict[int, _Taking] = {}

    def open(self, session: int, opening: Opening) -> None:
        """Begins to record a sequence."""
        self.taking[session] = _Taking(opening.sampling.seed, opening.prompt, list(opening.tokens))

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Keeps decided tokens."""
        self.taking[session].tokens[length:] = tokens

    def see(self, session: int, start: int, states: Tensor) -> None:
        """Keeps states, in bfloat16."""
        self.taking[session].states.append(states.bfloat16())

    def close(self, session: int) -> None:
        """Writes the sequence, if the target has said something."""
        taken = self.taking.pop(session)
        rows = sum(map(len, taken.states))
        if rows <= taken.prompt:
            return
        prompt = self._prompts[taken.number]
        ids, states = taken.tokens[: rows + 1], torch.cat(taken.states)[: len(taken.tokens) - 1]
        self.full |= not self._shelf.add(taken.number, prompt.kind, prompt.held_out, taken.prompt, ids, states)

    def finish(self) -> None:
        """Writes the sequences that are under way; the engine has ended."""
        for session in list(self.taking):
            self.close(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        """No guesses."""
        return []


@dataclass(frozen=True, slots=True)
class Asking:
    """How the target is asked.

    Attributes:
        tokens: of all answers together; asking ends there.
        answer: most tokens of an answer.
        greedy: share of the answers that take the likeliest tokens; the others are drawn at temperature 1.
        deadline: when asking ends, in seconds of `time.monotonic`.
    """

    tokens: int
    answer: int = 256
    greedy: float = 0.5
    deadline: float = float("inf")

    def params(self, number: int) -> SamplingParams:
        """The parameters for a prompt."""
        cold = random.Random(number).random() < self.greedy  # kinds of prompts take turns: no other pattern may
        return SamplingParams(temperature=0.0 if cold else 1.0, seed=number, max_tokens=self.answer)


def record(
    target: Target, prompts: Sequence[Prompt], shelf: Shelf, asking: Asking, watch: Callable[[int], None]
) -> None:
    """Has the target answer the prompts that are not on the shelf; ``watch`` is told the tokens of all answers.

    All prompts are asked at once: the engine runs as many as its `max_running`. An answer that is cut short by the end
    of asking is kept as far as it goes. The target decodes nothing afterwards.
    """
    recorder = Recorder(recorded_layers(target.runner.model.config.layers), prompts, shelf)
    done = {entry.number for entry in shelf.entries}
    with ThreadPoolExecutor(1) as pool, LLM.over(with_drafter(target, recorder)) as llm:
        asked = (ask(llm, prompt, asking.params(n)) for n, prompt in enumerate(prompts) if n not in done)
        reading = pool.submit(_read, [stream for stream in asked if stream is not None])
        while not (recorder.full or shelf.answered >= asking.tokens or time.monotonic() >= asking.deadline):
            watch(shelf.answered)
            if wait([reading], _POLL_S).done:
                reading.result()
                break
    recorder.finish()
    watch(shelf.answered)
    shelf.sort()


def ask(llm: LLM, prompt: Prompt, params: SamplingParams) -> Stream | None:
    """The answer to a prompt; None if the prompt is too long for the target."""
    try:
        said = prompt.said
        return llm.stream(said, params) if isinstance(said, str) else llm.stream_chat(said, params)
    except RequestError:
        return None


def _read(streams: Sequence[Stream]) -> None:
    """Reads all answers, until the engine is closed."""
    for stream in streams:
        with suppress(EngineStopped):
            stream.result()


def with_drafter(target: Target, drafter: Drafter, cost: CostCurve | None = None) -> Target:
    """The target with one drafter, which is asked at every step; guesses are bought as if rows cost ``cost``."""
    view = TargetView(target.runner.rule, target.runner.model.config.vocab_size)
    guessing = Guessing(view, target.scheduler, cost or target.cost, [drafter], AskAlways())
    return replace(target, guessing=guessing)
