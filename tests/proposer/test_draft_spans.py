"""Spans of drafting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outrider.engine.speculation import DraftTree
from outrider.mesh.telemetry import begun_span, start_tracing, traceparent
from outrider.proposer.draft_spans import MOST_ROUNDS, DraftSpans

TREE = DraftTree(5, [1, 2], [-1, 0], [0.5, 0.5], "model")


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    made = InMemorySpanExporter()
    telemetry = start_tracing("proposer", "proposer-1", made)
    yield made
    telemetry.close()


def test_a_session_has_a_span_with_its_rounds_as_long_as_they_are_not_too_many(exporter: InMemorySpanExporter) -> None:
    spans, request = DraftSpans(), begun_span("request")
    spans.open(1, traceparent(request.get_span_context()), "model")
    for _ in range(MOST_ROUNDS + 2):
        spans.note(0.001, [(1, TREE)])
    spans.close(1)
    *rounds, session = exporter.get_finished_spans()
    assert (session.name, session.attributes) == ("draft", {"outrider.drafter": "model"})
    assert len(rounds) == MOST_ROUNDS
    assert {span.parent.span_id for span in rounds if span.parent} == {session.context.span_id}
    assert rounds[0].attributes == {"outrider.length": 5, "outrider.guesses": 2, "outrider.depth": 2}
    assert (rounds[0].end_time or 0) - (rounds[0].start_time or 0) == 1_000_000


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'a' * 32}-{'b' * 16}-00"])
def test_a_session_whose_trace_is_not_kept_has_no_span(exporter: InMemorySpanExporter, header: str) -> None:
    spans = DraftSpans()
    spans.open(1, header, "model")
    spans.note(0.001, [(1, TREE)])
    spans.close(1)
    assert not exporter.get_finished_spans()
