"""The span of a generation, by OpenTelemetry's conventions for generative AI. It never holds a prompt or an answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind
from outrider.gateway.request.generation import Generation
from outrider.gateway.routing.job import Job
from outrider.mesh.telemetry import begun_span, mark_failed
from outrider.wire.frames import Frame

_PARAMETERS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "max_tokens", "seed")
"""Sampling parameters with an attribute of the conventions. Stop strings, which have one too, are a user's text."""


class GenAiSpan:
    """The span of one request, from its tokenization to the end of its flight; inside the current span.

    ``model`` is the model that is asked for, if there is one of this name: any other name may be any text.
    """

    def __init__(self, request_id: str, generation: Generation, model: str | None) -> None:
        self._operation = generation.operation
        self._span = begun_span(
            _name(self._operation, model),
            kind=SpanKind.CLIENT,
            attributes=_asked(request_id, self._operation, generation),
        )

    def entered(self) -> AbstractContextManager[Span]:
        """Makes it the current span for a block, and does not end it."""
        return trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def placed(self, jobs: Sequence[Job], prompts: int) -> None:
        """Verifiers have taken ``jobs``, which answer so many ``prompts``."""
        model, answers = jobs[0].served.name, len(jobs) // prompts
        self._span.update_name(_name(self._operation, model))
        self._span.set_attributes(
            {
                "gen_ai.request.model": model,
                "gen_ai.response.model": model,
                "gen_ai.usage.input_tokens": sum(len(job.prompt) for job in jobs[::answers]),
            }
        )

    def fail(self, error: BaseException) -> None:
        """Ends it: ``error`` refused the request."""
        mark_failed(self._span, error)
        self._span.end()

    def end(self, spent: int, ends: Sequence[Frame], error: object) -> None:
        """Ends it after ``spent`` generated tokens, with the last frames of choices, and an error or None."""
        if not self._span.is_recording():
            return
        usages = [end.usage for end in ends if end.usage is not None]
        cached = sum(usage.cached_tokens for usage in usages)
        steps = sum(usage.steps for usage in usages)
        self._span.set_attributes(
            {
                "gen_ai.usage.output_tokens": spent,
                "gen_ai.usage.cache_read.input_tokens": cached,
                "gen_ai.response.finish_reasons": [str(end.finish) for end in ends],
                "outrider.steps": steps,
            }
        )
        if isinstance(error, BaseException):
            mark_failed(self._span, error)
        self._span.end()


def _name(operation: str, model: str | None) -> str:
    return f"{operation} {model}" if model else operation


def _asked(request_id: str, operation: str, generation: Generation) -> dict[str, Any]:
    values = {
        f"gen_ai.request.{name}": value
        for name in _PARAMETERS
        if (value := getattr(generation.sampling, name)) is not None
    }
    return values | {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "outrider",
        "gen_ai.request.choice.count": generation.choices,
        "gen_ai.response.id": request_id,
    }
