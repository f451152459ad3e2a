"""The time line of one request: its target steps, draft passes and messages, on one clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outrider.mesh.telemetry.timeline import (
    DraftRound,
    Event,
    Message,
    ProcessStart,
    SequenceStep,
    Step,
    TreeOffer,
    TreeSize,
)


class TraceError(ValueError):
    """The events make no time line; the message is one sentence for the operator."""


class Span(NamedTuple):
    """Begin and end, in seconds since the request's first step began."""

    began: float
    ended: float


class TargetStep(NamedTuple):
    """A step of the target with rows of the request.

    Attributes:
        waited: seconds of the step that waited for local drafters.
        rows: rows of all sequences.
        prompt: whether the step had rows of prompts.
        own: the request's part of the step.
    """

    span: Span
    waited: float
    rows: int
    prompt: bool
    own: SequenceStep


class DraftPass(NamedTuple):
    """A round of a proposer's drafting, and the request's tree that the round made."""

    span: Span
    proposer: str
    tree: TreeSize | None


class Flight(NamedTuple):
    """A message about the request, from sent to received, with the sequence's length in the message."""

    what: str
    span: Span
    length: int


class Offer(NamedTuple):
    """A proposer's tree at its arrival in the verifier's engine."""

    at: float
    tree: TreeSize
    behind: int
    kept: bool


@dataclass(frozen=True)
class Trace:
    """The time line of one request."""

    request: str
    steps: list[TargetStep]
    passes: list[DraftPass]
    flights: list[Flight]
    offers: list[Offer]

    @property
    def proposers(self) -> list[str]:
        """Names of proposers, in the order of their first draft passes."""
        return list(dict.fromkeys(pass_.proposer for pass_ in self.passes))

    @property
    def ended(self) -> float:
        """Seconds from the beginning of the first step to the end of the last step."""
        return self.steps[-1].span.ended


def trace(events: Iterable[Event], request: str) -> Trace:
    """The time line of ``request``, an id of verifiers.

    Raises:
        TraceError: the events are of several machines, or no event is of the request.
    """
    ordered = sorted(events, key=lambda event: event.at)
    _require_one_clock(ordered)
    stepped = [(step, own) for step in ordered if isinstance(step, Step) for own in step.sequences]
    own_steps = [(step, own) for step, own in stepped if own.request == request]
    if not own_steps:
        raise TraceError(f"no step of request {request} is in the files: the verifier needs the setting timeline")
    start, number, verifier = own_steps[0][0].at, own_steps[0][1].session, own_steps[0][0].instance
    steps = [
        TargetStep(_span(step.at, step.took, start), step.waited, step.rows, step.prompt_rows > 0, own)
        for step, own in own_steps
    ]
    end = start + steps[-1].span.ended
    ordered = [event for event in ordered if event.at <= end]
    return Trace(
        request,
        steps,
        [
            _pass(event, number, start)
            for event in ordered
            if isinstance(event, DraftRound) and event.at + event.took >= start
        ],
        _flights([event for event in ordered if isinstance(event, Message)], number, start),
        [
            Offer(event.at - start, event.tree, event.behind, event.kept)
            for event in ordered
            if isinstance(event, TreeOffer) and event.tree.session == number and event.instance == verifier
        ],
    )


def _require_one_clock(events: Sequence[Event]) -> None:
    hosts = {event.host for event in events if isinstance(event, ProcessStart)}
    if len(hosts) > 1:
        raise TraceError("the events come from several machines, or from before a restart: their clocks do not agree")


def _span(at: float, took: float, start: float) -> Span:
    return Span(at - start, at - start + took)


def _pass(event: DraftRound, number: int, start: float) -> DraftPass:
    tree = next((tree for tree in event.trees if tree.session == number), None)
    return DraftPass(_span(event.at, event.took, start), event.instance, tree)


def _flights(messages: Sequence[Message], number: int, start: float) -> list[Flight]:
    """Pairs each received message with the last earlier sent message of its kind and length."""
    flights = []
    for received in messages:
        for entry in received.told if received.heard else ():
            if entry.session != number:
                continue
            sent = [m.at for m in messages if not m.heard and m.what == received.what and entry in m.told]
            place = bisect_left(sent, received.at)
            if place:
                flights.append(Flight(received.what, Span(sent[place - 1] - start, received.at - start), entry.length))
    return flights
