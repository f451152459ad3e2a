"""An attack, and the verdict on its run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import msgspec
from outrider.loadtest.attack.mesh import Mesh
from outrider.loadtest.attack.reader import StreamRecord
from outrider.loadtest.attack.watch import ProcessChanges

OUTCOMES = ("lost", "hung", "altered")
STALL_S = 8.0
"""Seconds that a victim may wait for a token."""
TIMES_QUIET = 4.0
"""Factor on the longest undisturbed stall that a victim may also wait, for slow machines."""
GROWTH_MIB = 512.0
"""Memory by which all processes of one kind together may grow."""


class AttackLog:
    """Counts of the answers to the attacker, and of problems."""

    def __init__(self) -> None:
        self.answers = Counter[str]()
        self.problems = Counter[str]()

    def answer(self, answer: object) -> None:
        """Counts an answer."""
        self.answers[str(answer)] += 1

    def problem(self, problem: str) -> None:
        """Counts a problem."""
        self.problems[problem] += 1


@dataclass(frozen=True)
class Attack:
    """An attack of a client on a mesh.

    Attributes:
        what: the attack in a sentence.
        stall_s: seconds that a victim may wait for its next token.
        most_s: time limit in seconds; reaching it is a problem.
        cheap: whether the tests run the attack too.
    """

    name: str
    what: str
    run: Callable[[Mesh, AttackLog], Awaitable[None]]
    stall_s: float = STALL_S
    most_s: float = 120.0
    cheap: bool = False


class Pace(msgspec.Struct, frozen=True):
    """Times between tokens of the victims, in seconds. The longest stall includes waits for first tokens."""

    streams: int
    tokens: int
    p50_s: float
    p99_s: float
    stall_s: float

    def __str__(self) -> str:
        itl = f"ITL {self.p50_s * 1e3:.1f} and {self.p99_s * 1e3:.0f} ms"
        return f"{self.streams} streams, {itl}, stall {self.stall_s:.1f} s"

    @classmethod
    def of(cls, records: Iterable[StreamRecord], began: float, ended: float) -> Pace:
        """The pace of ``records`` from ``began`` to ``ended``."""
        streams = list(records)
        stalls = [stall for stream in streams for at, stall in _stalls(stream) if at >= began]
        gaps = [gap for stream in streams for at, gap in _between_tokens(stream) if began <= at <= ended]
        times = sorted(gaps)
        middle = statistics.median(times) if times else float("nan")
        last = times[min(len(times) - 1, int(0.99 * len(times)))] if times else float("nan")
        return cls(len(streams), len(times), middle, last, max(stalls, default=0.0))


def _between_tokens(stream: StreamRecord) -> list[tuple[float, float]]:
    """Arrival and seconds of each token after the first event; tokens of one event share its time."""
    pairs = pairwise(stream.arrivals)
    return [(at, (at - before) / count) for (before, _), (at, count) in pairs for _ in range(count)]


def _stalls(stream: StreamRecord) -> list[tuple[float, float]]:
    """End and length of each wait, from the request to the end of the stream."""
    times = [stream.began, *(at for at, _ in stream.arrivals), stream.ended]
    return [(at, at - before) for before, at in pairwise(times)]


class Verdict(msgspec.Struct):
    """The effect of an attack on victims. ``recovered_s``: from its end until each victim had a new whole stream."""

    name: str
    what: str
    seconds: float
    told: dict[str, int]
    undisturbed: Pace
    pace: Pace
    outcomes: dict[str, int]
    refused: int
    returns: int
    failures: list[str]
    processes: ProcessChanges
    recovered_s: float
    stall_bound_s: float
    wrong: list[str] = []
    slow: list[str] = []

    @property
    def passed(self) -> bool:
        """Whether there is no problem and no victim waited too long."""
        return not self.wrong and not self.slow


def judge(
    attack: Attack,
    log: AttackLog,
    changes: ProcessChanges,
    records: list[StreamRecord],
    span: tuple[float, float, float],
    undisturbed: Pace,
) -> Verdict:
    """Judges an attack. ``span``: when the attack began, when it ended, and when all victims were served again."""
    began, ended, settled = span
    outcomes = Counter(stream.outcome for stream in records)
    verdict = Verdict(
        name=attack.name,
        what=attack.what,
        seconds=ended - began,
        told=dict(log.answers),
        undisturbed=undisturbed,
        pace=Pace.of(records, began, settled),
        outcomes=dict(outcomes),
        refused=sum(stream.refused for stream in records),
        returns=sum(stream.returns for stream in records),
        failures=[f"{s.request or s.number}: {s.outcome}, {s.why}" for s in records if s.outcome in OUTCOMES],
        processes=changes,
        recovered_s=settled - ended,
        stall_bound_s=max(attack.stall_s, TIMES_QUIET * undisturbed.stall_s),
    )
    verdict.wrong = [*_wrong(verdict), *(f"{count} times {what}" for what, count in log.problems.items())]
    if verdict.pace.stall_s > verdict.stall_bound_s:
        verdict.slow = [f"a victim waited {verdict.pace.stall_s:.1f} s, over {verdict.stall_bound_s:.1f} s"]
    return verdict


def _wrong(verdict: Verdict) -> list[str]:
    changes = verdict.processes
    problems = [f"{count} {kind} died" for kind, count in changes.died.items()]
    problems += [
        f"{verdict.outcomes[outcome]} streams {outcome}" for outcome in OUTCOMES if outcome in verdict.outcomes
    ]
    problems += [f"victims were refused {verdict.refused} times"] if verdict.refused else []
    grown = {kind: mib for kind, mib in changes.grew_mib.items() if mib > GROWTH_MIB}
    return problems + [f"{kind} grew by {mib:.0f} MiB, over {GROWTH_MIB:g}" for kind, mib in grown.items()]
