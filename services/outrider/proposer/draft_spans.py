"""The spans of sessions: `draft` from a session's begin to its end, and in it a `round` for each tree."""

from __future__ import annotations

import time
from dataclasses import dataclass

from opentelemetry.trace import Span
from outrider.engine.speculation import DraftTree
from outrider.mesh.telemetry import begun_span, span_named_by
from outrider.mesh.telemetry.timeline import TreeSize

MOST_ROUNDS = 1000
"""Rounds of a session that have spans of their own."""


@dataclass(slots=True)
class _Session:
    span: Span
    rounds: int = 0


class DraftSpans:
    """Spans of the sessions whose trace is kept. `note` is called in the drafter's thread, the rest in the loop's."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}

    def open(self, number: int, traceparent: str, drafter: str) -> None:
        """Begins a session's span inside the span that ``traceparent`` names."""
        if (parent := span_named_by(traceparent)) is not None:
            attributes = {"outrider.drafter": drafter}
            self._sessions[number] = _Session(begun_span("draft", parent, attributes=attributes))

    def note(self, took: float, trees: list[tuple[int, DraftTree]]) -> None:
        """Makes spans of a round of drafting that took ``took`` seconds until now and made ``trees``."""
        ended = time.time_ns()
        for number, tree in trees:
            if (session := self._sessions.get(number)) is None or session.rounds >= MOST_ROUNDS:
                continue
            session.rounds += 1
            size = TreeSize.of(number, tree.length, tree.parents)
            attributes = {"outrider.length": size.length, "outrider.guesses": size.nodes, "outrider.depth": size.depth}
            began = ended - round(took * 1e9)
            begun_span("round", session.span.get_span_context(), at=began, attributes=attributes).end(ended)

    def close(self, number: int) -> None:
        """Ends a session's span, if the session has one."""
        if (session := self._sessions.pop(number, None)) is not None:
            session.span.end()
