"""The spans of a request in a verifier."""

from __future__ import annotations

from collections import Counter

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outrider.engine.requests.output import Finish, Output
from outrider.mesh.telemetry import begun_span, current_headers, start_tracing
from outrider.verifier.tracing.trace import MOST_STEPS, RequestTrace


def frame(finish: Finish | None = None) -> Output:
    return Output("r", 0, [1], ["a"], [""], finish)


def test_a_long_answer_has_spans_of_its_first_steps_and_frames_only() -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_tracing("verifier", "verifier-1", exporter)
    trace = RequestTrace(begun_span("request").get_span_context())
    trace.begin()
    for number in range(1, MOST_STEPS + 3):
        step = trace.step(1000 * number, 1000 * number + 10, True, {"outrider.step.number": number})
        with trace.publishing(step, frame()):
            assert (current_headers() is not None) == (step is not None) == (number <= MOST_STEPS)
    trace.end(frame(Finish.CANCELLED))
    telemetry.close()
    names = Counter(span.name for span in exporter.get_finished_spans())
    assert names == {
        "step": MOST_STEPS,
        "publish frames": MOST_STEPS,
        "queue": 1,
        "prefill": 1,
        "decode": 1,
        "generate": 1,
    }
    stages = {span.name: span for span in exporter.get_finished_spans()}
    assert stages["queue"].end_time == stages["prefill"].start_time == 1000
    assert stages["prefill"].end_time == stages["decode"].start_time == 1010
    assert stages["generate"].attributes == {"outrider.finish": "cancelled"}
