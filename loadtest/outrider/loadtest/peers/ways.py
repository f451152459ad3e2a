"""Ways of running engines, which take turns on the same requests."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from outrider.loadtest.load.turns import Case, Turn, rotated
from outrider.measure.load.prompts import PromptsError

OUTRIDER, OPENVINO, LLAMA = "Outrider", "OpenVINO", "llama.cpp"
_WARM_UP = Case("warm-up", 0.0, 2)

R = TypeVar("R")
RunTurn = Callable[[Case, Sequence[R], int], Turn]
"""Runs a case's requests in a repeat; `mode` names the turn's mode, and repeat -1 is not measured."""


class Plan(NamedTuple, Generic[R]):
    """The measurement to run.

    Attributes:
        cases: cases that every mode runs in a repeat.
        supply: makes new requests for a case.
        warm_up: requests that every way answers before the measurement.
        repeats: turns of each case.
        minutes: time limit; later turns are left out.
    """

    cases: list[Case]
    supply: Callable[[Case], Sequence[R]]
    warm_up: Sequence[R]
    repeats: int
    minutes: float


@dataclass
class Engines(Generic[R]):
    """The engines that were started, and their description for a report.

    Attributes:
        ways: function that runs a turn, by mode.
        missing: engines and ways that are left out, with the reason.
        versions: packages of the peers, ``name==version``.
        formats: OpenVINO's weight format by model.
    """

    ways: dict[str, RunTurn[R]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    formats: dict[str, str] = field(default_factory=dict)

    def report_fields(self) -> dict[str, Any]:
        """The description for a report, by name."""
        return {"missing": self.missing, "versions": self.versions, "formats": self.formats}


def mode(engine: str, way: str) -> str:
    """Name of a way of an engine."""
    return f"{engine} {way}"


def measure(plan: Plan[R], ways: Mapping[str, RunTurn[R]]) -> list[Turn]:
    """Runs all turns: every way answers the same requests of a case; the order of ways rotates."""
    until = time.monotonic() + 60 * plan.minutes
    turns: list[Turn] = []
    for run_turn in ways.values():
        run_turn(_WARM_UP, plan.warm_up, -1)
    for repeat, (number, case) in itertools.product(range(plan.repeats), enumerate(plan.cases)):
        if time.monotonic() >= until:
            break
        try:
            requests = plan.supply(case)
        except PromptsError as error:
            print(f"Nothing more is measured: {error}")
            break
        turns += [ways[name](case, requests, repeat) for name in rotated(list(ways), repeat + number)]
    return turns
