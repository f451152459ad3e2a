"""The time line of one request: its target steps, draft passes and messages, on one clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outrider.mesh.telemetry.timeline import Began, Event, Grown, Message, Pass, Step, Stepped, Taken


class TraceError(ValueError):
    """Events do not make a time line; the message is one sentence for the operator."""


class Span(NamedTuple):
    """From when to when, in seconds since the request's first step began."""

    began: float
    ended: float


class TargetStep(NamedTuple):
    """A step that had rows of the request.

    Attributes:
        waited: seconds of it for which it waited for the verifier's own drafters.
        rows: of all sequences.
        prompt: whether it computed prompts.
        own: what it did for the request.
    """

    span: Span
    waited: float
    rows: int
    prompt: bool
    own: Stepped


class DraftPass(NamedTuple):
    """A piece of a proposer's drafting, and the request's tree that came of it."""

    span: Span
    proposer: str
    tree: Grown | None


class Flight(NamedTuple):
    """A message about the request, from when it is sent to when it is heard, and the length that it tells."""

    what: str
    span: Span
    length: int


class Offered(NamedTuple):
    """A proposer's tree as it reaches the engine."""

    at: float
    tree: Grown
    behind: int
    kept: bool


@dataclass(frozen=True)
class Trace:
    """What happened while one request ran."""

    request: str
    steps: list[TargetStep]
    passes: list[DraftPass]
    flights: list[Flight]
    offers: list[Offered]

    @property
    def proposers(self) -> list[str]:
        """Names, in the order of their first draft pass."""
        return list(dict.fromkeys(each.proposer for each in self.passes))

    @property
    def ended(self) -> float:
        """Seconds from the first step's beginning to the last one's end."""
        return self.steps[-1].span.ended


def trace(events: Iterable[Event], request: str) -> Trace:
    """The time line of ``request``, an id as verifiers know it.

    Raises:
        TraceError: the events are of several machines, or none is of the request.
    """
    known = sorted(events, key=lambda event: event.at)
    _require_one_clock(known)
    stepped = [(step, own) for step in known if isinstance(step, Step) for own in step.sequences]
    mine = [(step, own) for step, own in stepped if own.request == request]
    if not mine:
        raise TraceError(f"no step of request {request} is in the files: the verifier needs the setting timeline")
    zero, number, verifier = mine[0][0].at, mine[0][1].session, mine[0][0].instance
    steps = [
        TargetStep(_span(step.at, step.took, zero), step.waited, step.rows, step.prompt_rows > 0, own)
        for step, own in mine
    ]
    end = zero + steps[-1].span.ended
    known = [each for each in known if each.at <= end]
    return Trace(
        request,
        steps,
        [_pass(each, number, zero) for each in known if isinstance(each, Pass) and each.at + each.took >= zero],
        _flights([each for each in known if isinstance(each, Message)], number, zero),
        [
            Offered(each.at - zero, each.tree, each.behind, each.kept)
            for each in known
            if isinstance(each, Taken) and each.tree.session == number and each.instance == verifier
        ],
    )


def _require_one_clock(events: Sequence[Event]) -> None:
    hosts = {event.host for event in events if isinstance(event, Began)}
    if len(hosts) > 1:
        raise TraceError("the events come from several machines, or from before a restart: their clocks do not agree")


def _span(at: float, took: float, zero: float) -> Span:
    return Span(at - zero, at - zero + took)


def _pass(event: Pass, number: int, zero: float) -> DraftPass:
    tree = next((tree for tree in event.trees if tree.session == number), None)
    return DraftPass(_span(event.at, event.took, zero), event.instance, tree)


def _flights(messages: Sequence[Message], number: int, zero: float) -> list[Flight]:
    """Each message that was heard with the last one of its kind and length that was sent before."""
    flights = []
    for heard in messages:
        for told in heard.told if heard.heard else ():
            if told.session != number:
                continue
            same = [each.at for each in messages if not each.heard and each.what == heard.what and told in each.told]
            place = bisect_left(same, heard.at)
            if place:
                flights.append(Flight(heard.what, Span(same[place - 1] - zero, heard.at - zero), told.length))
    return flights
