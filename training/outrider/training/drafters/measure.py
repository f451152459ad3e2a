"""How well a drafter guesses for a target: the engine answers held-out prompts with this drafter alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outrider.engine import LLM, SamplingParams
from outrider.engine.library.results import Result
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation import Drafter, DraftTree
from outrider.engine.speculation.policy.plugins import make_drafters
from outrider.engine.store import drafter_of
from outrider.engine.target import Target
from outrider.training.drafters.answers import ask, with_drafter
from outrider.training.drafters.errors import TrainingError
from outrider.training.drafters.prompts import Prompt

FREE = CostCurve([1, 4096], [1.0, 1.0])
"""Guesses that cost nothing: all of them are verified."""
TEMPERATURES = (0.0, 1.0)
_COLUMNS = (
    "prompts",
    "temperature",
    "answers",
    "steps",
    "tokens a step",
    "steps that accept 1, 2, 3, ... guesses or more",
    "guesses a step",
    "ms of drafting",
    "predicted speed",
)


@dataclass(slots=True)
class Figures:
    """What a drafter did for some answers, each alone in its steps.

    Attributes:
        kind: of the prompts.
        temperature: of the answers.
        answers: number of answers.
        steps: of the target, the one that reads a prompt left out.
        tokens: that these steps decided.
        guesses: that they verified.
        runs: how many steps accepted so many guesses.
        draft_s: seconds that the steps waited for the drafter.
        chains: whether every tree was a chain.
    """

    kind: str
    temperature: float
    answers: int = 0
    steps: int = 0
    tokens: int = 0
    guesses: int = 0
    runs: Counter[int] = field(default_factory=Counter)
    draft_s: float = 0.0
    chains: bool = True

    @property
    def length(self) -> float:
        """Tokens a step."""
        return self.tokens / max(self.steps, 1)

    def reached(self, depth: int) -> float:
        """Share of the steps that accepted ``depth`` guesses or more."""
        return sum(count for accepted, count in self.runs.items() if accepted >= depth) / max(self.steps, 1)

    def speed(self, cost: CostCurve) -> tuple[float, int]:
        """Predicted speed over that of plain decoding for one stream, and guesses a step at which it is reached.

        Chains may be cut where a further guess costs more than it brings; trees are taken whole.
        """
        steps = max(self.steps, 1)
        wait, whole = self.draft_s / steps, round(self.guesses / steps)
        if not self.chains:
            return self.length * cost(1) / (cost(1 + whole) + wait), whole
        length, best = 1.0, (1.0 * cost(1) / (cost(1) + wait), 0)
        for depth in range(1, max(self.runs, default=0) + 1):
            length += self.reached(depth)
            best = max(best, (length * cost(1) / (cost(1 + depth) + wait), depth))
        return best

    def add(self, result: Result) -> None:
        """Counts an answer; the last step may end before its guesses do, and is left out."""
        drafts = (result.drafts or [])[:-1]
        self.answers += 1
        self.steps += len(drafts)
        for draft in drafts:
            self.tokens += 1 + len(draft.accepted)
            self.guesses += len(draft.tokens)
            self.runs[len(draft.accepted)] += 1
            self.chains &= draft.parents == list(range(-1, len(draft.parents) - 1))


class Stopwatch:
    """Times the guessing of a drafter.

    Attributes:
        seconds: that `draft` took so far.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.seconds, self._draft = 0.0, drafter.draft
        drafter.draft = self.draft  # type: ignore[method-assign]

    def draft(self) -> list[tuple[int, DraftTree]]:
        """What the drafter guesses."""
        begun = time.perf_counter()
        found = self._draft()
        self.seconds += time.perf_counter() - begun
        return found


def measure(
    target: Target,
    settings: EngineSettings,
    prompts: Sequence[Prompt],
    answer: int,
    watch: Callable[[int, int], None],
    deadline: float = float("inf"),
) -> list[Figures]:
    """Figures by kind and temperature, of prompts that are answered one at a time, all guesses verified.

    Args:
        target: loaded, used by nothing else afterwards.
        settings: those of the target, with the drafter and its options.
        prompts: what to answer.
        answer: most tokens of an answer.
        watch: is told the answers that are done, and all.
        deadline: when to end, in seconds of `time.monotonic`, but not before the first answer.

    Raises:
        SettingsError: the drafter is unknown, or cannot serve this target.
        TrainingError: no prompt fits.
    """
    inner = make_drafters(settings, target.tokenizer.fingerprint, target.runner.model)
    if len(inner) != 1:
        raise TrainingError(f"one drafter is measured at a time; {', '.join(settings.drafters)} are {len(inner)}")
    found: dict[tuple[str, float], Figures] = {}
    stopwatch = Stopwatch(inner[0])
    wanted = [(prompt, temperature) for prompt in prompts for temperature in TEMPERATURES]
    with LLM.over(with_drafter(target, inner[0], FREE)) as llm:
        for number, (prompt, temperature) in enumerate(wanted):
            watch(number, len(wanted))
            if found and time.monotonic() >= deadline:
                break
            params = SamplingParams(temperature=temperature, seed=number, max_tokens=answer, return_drafts=True)
            before = stopwatch.seconds
            if (stream := ask(llm, prompt, params)) is not None:
                result = stream.result()
                figures = found.setdefault((prompt.kind, temperature), Figures(prompt.kind, temperature))
                figures.add(result)
                figures.draft_s += stopwatch.seconds - before
    watch(len(wanted), len(wanted))
    if not found:
        raise TrainingError("no prompt fits into the target's context")
    return [found[key] for key in sorted(found)]


def held_out(prompts: Iterable[Prompt], each: int) -> list[Prompt]:
    """Up to ``each`` held-out prompts of a kind, kinds in turn."""
    counts: Counter[str] = Counter()
    chosen = []
    for prompt in prompts:
        if prompt.held_out and counts[prompt.kind] < each:
            counts[prompt.kind] += 1
            chosen.append(prompt)
    return chosen


def alone(settings: EngineSettings, drafter: str, options: Mapping[str, Any] | None = None) -> EngineSettings:
    """The settings with one drafter: the name of an installed one, or the directory or file of its model.

    ``options`` are those of the drafter. Heads guess chains unless ``children`` says otherwise.
    """
    name, more = drafter, dict[str, Any]()
    if "/" in drafter or Path(drafter).exists():
        name = drafter_of(Path(drafter))
        more = {"model": drafter} | ({} if name == "model" else {"children": 1})
    return replace(settings, drafters=(name,), options={name: more | dict(options or {})})


def table(figures: Sequence[Figures], cost: CostCurve) -> str:
    """The figures in Markdown."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    for each in figures:
        speed, guesses = each.speed(cost)
        depths = range(1, max(each.runs, default=0) + 1)
        steps = max(each.steps, 1)
        cells = (
            each.kind,
            f"{each.temperature:g}",
            str(each.answers),
            str(each.steps),
            f"{each.length:.2f}",
            ", ".join(f"{each.reached(depth):.2f}" for depth in depths),
            f"{each.guesses / steps:.1f}",
            f"{1e3 * each.draft_s / steps:.1f}",
            f"{speed:.2f} with {guesses} guesses",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
