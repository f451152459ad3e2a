"""Counts of lost, hung and altered streams and of refused POSTs, by the fault before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.chaos.faults import Fault
from tests.chaos.journeys import Journey, Journeys

WRONG = ("lost", "hung", "altered")
UNRECORDED = "lost as its answer said"
REFUSED, EXCUSED = "refused while a verifier served", "refused while none served"
_LATE_S = 1.0
"""Seconds after a stream's last progress in which a fault counts as its cause."""
_SHOWN = 3


@dataclass
class Tally:
    """Counts over all streams and by the kind of fault before; ``problems`` has a line for each problem."""

    streams: int = 0
    returns: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    by_fault: dict[str, Counter[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> dict[str, int]:
        """Counts that must be 0 and are not."""
        return {what: count for what in (*WRONG, REFUSED) if (count := self.counts[what])}


def tally(journeys: Journeys, made: Sequence[Fault], began: float) -> Tally:
    """The tally of all journeys since ``began`` that have ended."""
    total = Tally()
    for fault in made:
        total.by_fault.setdefault(fault.name, Counter())["made"] += 1
    for journey in (each for each in journeys.all if each.began >= began and each.ended):
        total.streams += 1
        total.returns += journey.returns
        outcome = UNRECORDED if journey.outcome == "lost" and not journey.resumable else journey.outcome
        total.counts[outcome] += 1
        if outcome in (*WRONG, UNRECORDED):
            age = journey.progress - journey.began
            why = f"{journey.why} after {age:.1f} s{journey.heads_before(journey.ended)}"
            _wrong(total, outcome, journey, journey.progress + _LATE_S, made, why)
        for sent, heard, status in journey.refused:
            what = REFUSED if journeys.served(sent, heard) else EXCUSED
            _wrong(total, what, journey, heard, made, f"{status} after {heard - sent:.1f} s")
            total.counts[what] += 1
    return total


def _wrong(total: Tally, what: str, journey: Journey, at: float, made: Sequence[Fault], why: str = "") -> None:
    before = [fault for fault in made if fault.began <= at]
    last = before[-1].name if before else "no fault"
    total.by_fault.setdefault(last, Counter())[what] += 1
    if what != EXCUSED:
        faults = "; ".join(f"{at - each.began:.1f} s before: {each.name}: {each.what}" for each in before[-_SHOWN:])
        name = f"stream {journey.number} ({journey.request or 'never taken'})"
        total.problems.append(f"{name} {what}: {why or journey.why}; {faults or 'no fault before'}")


def show(total: Tally) -> None:
    """Prints a row for each kind of fault, then a line for each problem."""
    columns = ("made", *WRONG, REFUSED, UNRECORDED, EXCUSED)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("last fault before")
    for column in columns:
        table.add_column(column, justify="right", max_width=16)
    for name, counts in sorted(total.by_fault.items()):
        table.add_row(name, *(str(counts[column]) for column in columns))
    Console(width=120).print(table)
    counts = ", ".join(f"{count} {what}" for what, count in total.counts.items())
    print(f"{total.streams} streams, {total.returns} returns: {counts}", flush=True)
    for line in total.problems:
        print(line, flush=True)
