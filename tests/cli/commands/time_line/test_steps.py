"""The time line of one request from its events."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from outrider.cli.commands.time_line import plot_steps
from outrider.cli.commands.time_line.steps import Flight, Offer, Span, TraceError, trace
from outrider.mesh.telemetry.timeline import (
    DraftRound,
    Event,
    Message,
    ProcessStart,
    SequenceStep,
    SessionLength,
    Step,
    TreeOffer,
    TreeSize,
)
from rich.console import Console

TREE = TreeSize(7, 5, 4, 2)
EVENTS: list[Event] = [
    ProcessStart(1.0, "v", "verifier", "here"),
    ProcessStart(1.5, "p", "proposer", "here"),
    Step(9.0, "v", 0.5, 0.0, 1, 0, [SequenceStep(6, "other", 3, 1)]),
    Step(10.0, "v", 0.5, 0.0, 4, 4, [SequenceStep(7, "asked", 4, 1), SequenceStep(6, "other", 4, 1)]),
    Message(10.5, "v", "commits", False, [SessionLength(7, 5), SessionLength(6, 5)]),
    Message(10.75, "p", "commits", True, [SessionLength(7, 5), SessionLength(6, 5)]),
    DraftRound(11.0, "p", 0.25, [TreeSize(6, 5, 1, 1), TREE]),
    Message(11.25, "p", "trees", False, [SessionLength(7, 5)]),
    Message(11.5, "v", "trees", True, [SessionLength(7, 5)]),
    TreeOffer(11.75, "v", TREE, "p", 0, True),
    Step(11.75, "v", 1.0, 0.25, 3, 0, [SequenceStep(7, "asked", 5, 2, {"model": 2}, 1, [TREE])]),
    TreeOffer(12.75, "v", TREE, "p", 2, False),
    Step(20.0, "v", 1.0, 0.0, 1, 0, [SequenceStep(8, "later", 2, 1)]),
    DraftRound(20.5, "p", 0.25, []),
]


def test_times_of_a_trace_count_from_the_request_s_first_step() -> None:
    traced = trace(EVENTS, "asked")
    assert [(step.span, step.rows, step.prompt, step.own.decided) for step in traced.steps] == [
        (Span(0.0, 0.5), 4, True, 1),
        (Span(1.75, 2.75), 3, False, 2),
    ]
    assert [(each.span, each.proposer, each.tree) for each in traced.passes] == [(Span(1.0, 1.25), "p", TREE)]
    assert traced.flights == [
        Flight("commits", Span(0.5, 0.75), 5),
        Flight("trees", Span(1.25, 1.5), 5),
    ]
    assert traced.offers == [Offer(1.75, TREE, 0, True), Offer(2.75, TREE, 2, False)]
    assert traced.ended == 2.75
    assert traced.proposers == ["p"]


def test_a_request_that_no_step_served_has_no_time_line() -> None:
    with pytest.raises(TraceError, match="request unknown"):
        trace(EVENTS, "unknown")


def test_events_of_machines_whose_clocks_differ_are_refused() -> None:
    with pytest.raises(TraceError, match="several machines"):
        trace([*EVENTS, ProcessStart(2.0, "q", "proposer", "elsewhere")], "asked")


@pytest.mark.parametrize("name", ["steps.svg", "steps.png"])
def test_a_time_line_becomes_a_picture_and_a_table(name: str, tmp_path: Path) -> None:
    traced = trace(EVENTS, "asked")
    plot_steps.save(traced, tmp_path / name)
    assert (tmp_path / name).read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")
    shown = StringIO()
    Console(width=150, file=shown).print(plot_steps.table(traced))
    cells = [line.split() for line in shown.getvalue().splitlines()]
    assert ["0", "0", "500", "4", "1", "(prompt)", "0", "0", "0"] in cells
    assert ["1", "1750", "1000", "3", "2", "2", "model", "1", "4/2@-0", "1", "0", "0"] in cells
