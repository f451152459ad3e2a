"""Speeds that are compared: each case is run in every mode by turns, and ratios are taken within a turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from outrider.loadtest.load import client
from outrider.loadtest.load.arrivals import Closed, Send
from outrider.loadtest.load.prompts import unique
from outrider.loadtest.load.summary import Summary, median, summarize


class Case(msgspec.Struct, frozen=True):
    """What is run in every mode; without a temperature each request has its own."""

    workload: str
    temperature: float | None
    concurrency: int

    def __str__(self) -> str:
        """As named in tables."""
        return f"{self.group}, {self.concurrency} at a time"

    @property
    def group(self) -> str:
        """Workload and temperature."""
        return self.workload if self.temperature is None else f"{self.workload}, T={self.temperature:g}"


class Turn(msgspec.Struct, frozen=True):
    """One case in one mode, once."""

    case: Case
    mode: str
    repeat: int
    summary: Summary

    def __str__(self) -> str:
        """One line."""
        return f"{self.repeat + 1}: {self.case}, {self.mode}: {self.summary.tokens_per_s:.0f} tokens/s"


class Matrix:
    """The turns of a measurement."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = {(turn.case, turn.mode, turn.repeat): turn.summary for turn in turns}
        self.cases = list(dict.fromkeys(turn.case for turn in turns))
        self.modes = list(dict.fromkeys(turn.mode for turn in turns))

    def summary(self, case: Case, mode: str) -> Summary | None:
        """Medians over the repeats; None where the mode was not run."""
        found = [summary for (c, m, _), summary in self._turns.items() if (c, m) == (case, mode)]
        return median(found) if found else None

    def ratios(self, case: Case, mode: str, to: str = "off") -> list[float]:
        """The ratio of tokens a second of every repeat in which both modes ran."""
        return [
            summary.tokens_per_s / self._turns[case, to, repeat].tokens_per_s
            for (c, m, repeat), summary in self._turns.items()
            if (c, m) == (case, mode) and (case, to, repeat) in self._turns
        ]

    def ratio(self, case: Case, mode: str, to: str = "off") -> float:
        """Median of `ratios`; NaN where the modes did not run together."""
        found = self.ratios(case, mode, to)
        return statistics.median(found) if found else math.nan


async def take(
    url: str, mode: str, speculation: Any, case: Case, prompts: Sequence[str], max_tokens: int, repeat: int
) -> Turn:
    """One case in one mode, each prompt once.

    Raises:
        SystemExit: a request failed.
    """
    sends = _sends(url, f"{mode} {case} {repeat}", speculation, case, prompts, max_tokens)
    samples = await Closed(case.concurrency).run(sends, len(prompts))
    if error := next((sample.error for sample in samples if sample.error), ""):
        raise SystemExit(f"a request failed: {error}")
    return Turn(case, mode, repeat, summarize(samples))


def _sends(
    url: str, seed: str, speculation: Any, case: Case, prompts: Sequence[str], max_tokens: int
) -> Iterator[Send]:
    """Each prompt behind a comment of its own, so that no turn finds another's pages."""
    for number, prompt in enumerate(prompts):
        body = {
            "prompt": next(unique([prompt], f"{seed} {number}")),
            "max_tokens": max_tokens,
            "temperature": case.temperature,
            "seed": number,
            "ignore_eos": True,
            "speculation": speculation,
        }
        yield partial(client.complete, url, body)


def rotated(names: list[str], turn: int) -> list[str]:
    """``names`` from another one on each turn."""
    first = turn % len(names)
    return names[first:] + names[:first]
