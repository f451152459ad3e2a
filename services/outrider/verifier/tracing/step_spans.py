"""The spans of a step: one in the trace of each of its requests, all with the step's number and size."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence as Seq
from typing import Any

from opentelemetry.trace import SpanContext
from outrider.engine.decode.runner import Work


class StepSpans:
    """A step that is about to run ``works``; `end` makes spans for the requests whose trace is kept."""

    def __init__(self, works: Seq[Work]) -> None:
        self._traced = [
            (work, len(work.sequence.tokens), work.sequence.accepted)
            for work in works
            if work.sequence.request.trace is not None
        ]
        self._size = {
            "outrider.step.sequences": len(works),
            "outrider.step.rows": sum(len(work.tokens) for work in works),
        }

    def end(self, number: int, seconds: float) -> dict[str, SpanContext]:
        """Makes the spans of the step called ``number``, which took ``seconds`` until now, by request id."""
        ended = time.time_ns()
        began, spans = ended - round(seconds * 1e9), dict[str, SpanContext]()
        for work, length, accepted in self._traced:
            request = work.sequence.request
            attributes = {"outrider.step.number": number, **self._size, **_own(work, length, accepted)}
            if (trace := request.trace) and (span := trace.step(began, ended, work.draws, attributes)):
                spans[request.id] = span
        return spans


def _own(work: Work, length: int, accepted: int) -> dict[str, Any]:
    """What the step did for one request, which had ``length`` tokens and ``accepted`` guesses before."""
    own = {"outrider.rows": len(work.tokens), "outrider.tokens": len(work.sequence.tokens) - length}
    bought = Counter(work.guesses.drafters if work.guesses else ())
    if not bought:
        return own
    by_drafter = {f"outrider.guesses.{drafter}": guesses for drafter, guesses in bought.items()}
    return own | by_drafter | {"outrider.accepted": work.sequence.accepted - accepted}
