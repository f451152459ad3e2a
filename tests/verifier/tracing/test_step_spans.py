"""The spans of steps."""

from __future__ import annotations

from collections import Counter

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.mesh.telemetry import begun_span, start_tracing
from outrider.verifier.tracing.step_telemetry import StepTelemetry
from outrider.verifier.tracing.trace import RequestTrace

from tests.engine.engines import VOCABULARY, MakeEngine


def test_a_step_has_one_number_in_the_traces_of_all_its_requests_and_spans_of_those_alone(
    make_engine: MakeEngine,
) -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_tracing("verifier", "verifier-1", exporter)
    engine = make_engine(VOCABULARY, telemetry=StepTelemetry())
    traces = {name: RequestTrace(begun_span(name).get_span_context()) for name in ("a", "b")}
    for name in ("a", "b", "untraced"):
        engine.submit(Request(name, "t", [1, 2, 3], Sampling(0.0), 4, trace=traces.get(name)))
    for trace in traces.values():
        trace.begin()
    told = [engine.step().spans or {} for _ in range(4)]
    assert not engine.busy
    assert [sorted(spans) for spans in told] == [["a", "b"]] * 4
    telemetry.close()
    steps = [span for span in exporter.get_finished_spans() if span.name == "step"]
    assert Counter(span.attributes["outrider.step.number"] for span in steps) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert {span.attributes["outrider.step.sequences"] for span in steps} == {3}
    by_trace = {span.context.trace_id for span in steps}
    assert by_trace == {trace.parent.trace_id for trace in traces.values()}


def test_without_tracing_a_step_tells_of_no_spans(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, telemetry=StepTelemetry())
    engine.submit(Request("a", "t", [1, 2, 3], Sampling(0.0), 2))
    assert [engine.step().spans, engine.step().spans] == [None, None]
