"""The engine's telemetry in a verifier: spans for requests whose trace is kept, the time line, and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from time import perf_counter
from typing import Any

from outrider.engine.decode.runner import Work
from outrider.engine.requests.sequence import Sequence
from outrider.engine.speculation import DraftTree
from outrider.mesh.telemetry import Distribution, timeline, tracing
from outrider.mesh.telemetry.timeline import TreeOffer, TreeSize
from outrider.verifier.tracing.step_events import StepEvent
from outrider.verifier.tracing.step_spans import StepSpans


class StepTelemetry:
    """Follows the engine's `Telemetry`."""

    def distribution(self, bounds: Seq[float]) -> Distribution:
        """A distribution that metrics can show."""
        return Distribution(bounds)

    def step(self, works: Seq[Work]) -> _Watched | None:
        """Watches the step where there is a time line, or traces are kept."""
        event = StepEvent(works) if timeline() is not None else None
        spans = StepSpans(works) if tracing() else None
        return None if event is None and spans is None else _Watched(event, spans)

    def offered(self, sequence: Sequence, tree: DraftTree, source: str, behind: int, kept: bool) -> None:
        """Notes the offered tree in the time line."""
        if (to := timeline()) is not None:
            grown = TreeSize.of(sequence.number, tree.length, tree.parents)
            to.note(TreeOffer(perf_counter(), to.instance, grown, source, behind, kept))


class _Watched:
    """A step that is in the time line, in traces, or both."""

    def __init__(self, event: StepEvent | None, spans: StepSpans | None) -> None:
        self._event, self._spans = event, spans

    def end(self, number: int, began: float, ended: float, waited: float) -> Mapping[str, Any] | None:
        """Writes the step down."""
        if self._event is not None:
            self._event.note(began, ended, waited)
        return None if self._spans is None else self._spans.end(number, ended - began)
