"""Ways of answering requests, each of an engine, which take turns on the same requests."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from outrider.loadtest.load.prompts import PromptsError
from outrider.loadtest.load.turns import Case, Turn, rotated

OUTRIDER, OPENVINO, LLAMA = "Outrider", "OpenVINO", "llama.cpp"
_WARM_UP = Case("warm-up", 0.0, 2)

R = TypeVar("R")
Take = Callable[[Case, Sequence[R], int], Turn]
"""Has a case's requests answered in a repeat; the turn's mode is `mode`, repeat -1 is not measured."""


class Plan(NamedTuple, Generic[R]):
    """What is measured.

    Attributes:
        cases: what is measured of each mode in a repeat.
        supply: requests of a case, new ones each time.
        warm_up: requests that every way answers before anything is measured.
        repeats: turns of each case.
        minutes: what is not measured by then is left out.
    """

    cases: list[Case]
    supply: Callable[[Case], Sequence[R]]
    warm_up: Sequence[R]
    repeats: int
    minutes: float


@dataclass
class Engines(Generic[R]):
    """The engines that were started, and what is told of them.

    Attributes:
        ways: how each mode answers.
        missing: what is left out, and why.
        versions: packages of the peers, ``name==version``.
        formats: OpenVINO's weight format by model.
    """

    ways: dict[str, Take[R]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    formats: dict[str, str] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """By name, for a report."""
        return {"missing": self.missing, "versions": self.versions, "formats": self.formats}


def mode(engine: str, way: str) -> str:
    """Name of a way of an engine."""
    return f"{engine} {way}"


def measure(plan: Plan[R], ways: Mapping[str, Take[R]]) -> list[Turn]:
    """All turns. Every way answers the same requests of a case in turn; another way is the first in each repeat."""
    until = time.monotonic() + 60 * plan.minutes
    found: list[Turn] = []
    for take in ways.values():
        take(_WARM_UP, plan.warm_up, -1)
    for repeat, (number, case) in itertools.product(range(plan.repeats), enumerate(plan.cases)):
        if time.monotonic() >= until:
            break
        try:
            asked = plan.supply(case)
        except PromptsError as error:
            print(f"Nothing more is measured: {error}")
            break
        found += [ways[name](case, asked, repeat) for name in rotated(list(ways), repeat + number)]
    return found
