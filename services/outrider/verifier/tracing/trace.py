"""The spans of one request: `generate`, with its stages `queue`, `prefill` and `decode`, and in them the steps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, SpanKind
from outrider.engine.requests.output import Output
from outrider.mesh.telemetry import begun_span, continued_span

MOST_STEPS = 1000
"""Steps of a request that have spans of their own, so that a long answer's trace can still be shown."""


class RequestTrace:
    """The spans of a request that runs inside the span ``parent``. Only requests whose trace is kept have one.

    `begin` and `step` are called in the engine's thread, and then `publishing` and `end` in the event loop.
    """

    def __init__(self, parent: SpanContext) -> None:
        self.parent = parent
        self._whole: Span = INVALID_SPAN
        self._stage: Span = INVALID_SPAN
        self._steps, self._drew = 0, False

    def begin(self) -> None:
        """The engine has taken the request, which waits now."""
        self._whole = begun_span("generate", self.parent)
        self._stage = begun_span("queue", self._whole.get_span_context())

    def step(self, began: int, ended: int, draws: bool, attributes: Mapping[str, Any]) -> SpanContext | None:
        """A step has run rows of the request; ``began`` and ``ended`` are in nanoseconds since 1970.

        The first step that ``draws`` a token ends the prefill. Returns the step's span; None beyond `MOST_STEPS`.
        """
        self._steps += 1
        if self._steps == 1:
            self._enter("prefill", began)
        made = None
        if self._steps <= MOST_STEPS:
            span = begun_span("step", self._stage.get_span_context(), at=began, attributes=attributes)
            span.end(ended)
            made = span.get_span_context()
        if draws and not self._drew:
            self._drew = True
            self._enter("decode", ended)
        return made

    def publishing(self, step: SpanContext | None, output: Output) -> AbstractContextManager[object]:
        """The span around the publishing of an output of ``step``; the message carries the span to its readers."""
        if self._steps > MOST_STEPS:
            return nullcontext()
        attributes = {"messaging.system": "nats", "outrider.tokens": len(output.tokens)}
        parent = step or self._whole.get_span_context()
        return continued_span(parent, "publish frames", kind=SpanKind.PRODUCER, attributes=attributes)

    def end(self, output: Output) -> None:
        """The last ``output`` of the request is published."""
        self._whole.set_attribute("outrider.finish", str(output.finish))
        if (usage := output.usage) is not None:
            self._whole.set_attributes(
                {
                    "gen_ai.usage.input_tokens": usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": usage.completion_tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                    "outrider.steps": usage.steps,
                    "outrider.accepted": usage.accepted_tokens,
                    "outrider.rejected": usage.rejected_tokens,
                }
            )
        self._stage.end()
        self._whole.end()

    def _enter(self, stage: str, at: int) -> None:
        """Ends the present stage and begins the next, ``at`` in nanoseconds since 1970."""
        self._stage.end(at)
        self._stage = begun_span(stage, self._whole.get_span_context(), at=at)
