"""Measures steps, for estimates, speculation, metrics, traces and the time line."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from time import perf_counter

from opentelemetry.trace import SpanContext
from outrider.mesh.telemetry import timeline, tracing
from outrider.verifier.decode.outcome import Tally
from outrider.verifier.decode.runner import Work
from outrider.verifier.decode.step_events import StepEvent
from outrider.verifier.decode.step_spans import StepSpans
from outrider.verifier.scheduling.estimate import Estimate
from outrider.verifier.scheduling.plan import Plan
from outrider.verifier.speculation.guessing import Guessing


class StepMeter:
    """Measures one step after another. ``clock`` gives seconds.

    A step that directly follows another begins when the other ended: the time between them is part of the step.

    Attributes:
        tally: running totals since start.
        spans: spans of the last step by request id; None if none of its requests has a trace that is kept.
    """

    def __init__(self, guessing: Guessing, estimate: Estimate, clock: Callable[[], float] = perf_counter) -> None:
        self._guessing, self._estimate, self._clock = guessing, estimate, clock
        self.tally = Tally(guesses=guessing.counts)
        self._began = self._ended = self._ran = 0.0
        self._tokens = self._crowd = 0
        self._event: StepEvent | None = None
        self._spans: StepSpans | None = None
        self.spans: dict[str, SpanContext] | None = None

    def begin(self) -> None:
        """Begins a step."""
        self._began, self._ended = self._ended or self._clock(), 0.0
        self._tokens = self.tally.tokens

    def pause(self) -> None:
        """Notes that the time until the next step is not a part of that step."""
        self._ended = 0.0

    def run(self, works: Seq[Work], crowd: int) -> None:
        """Notes that the step is about to run ``works``. ``crowd``: running sequences if requests wait, else 0."""
        self._crowd, self._ran = crowd, self._clock()
        self._event = StepEvent(works) if works and timeline() is not None else None
        self._spans = StepSpans(works) if works and tracing() else None

    def end(self, plan: Plan, works: Seq[Work], more: bool) -> None:
        """Ends the step. With ``more`` work, the next step follows directly."""
        ended, tokens = self._clock(), self.tally.tokens - self._tokens
        seconds = ended - self._began
        rows = self._count(works)
        self._count_times(ended)
        self._guessing.time(plan, rows, seconds)
        self._estimate.step(
            rows=rows, prompt_rows=plan.prompt_rows, decoding=len(plan.decoding), tokens=tokens, seconds=seconds
        )
        if self._event is not None:
            self._event.note(self._began, ended, self._guessing.waited)
        self.spans = self._spans.end(self.tally.steps, seconds) if self._spans is not None else None
        if self._crowd:
            self.tally.crowded(self._crowd, tokens, seconds)
        if works and not plan.prefilling and more:
            self._ended = ended

    def _count(self, works: Seq[Work]) -> int:
        """Counts the step and its rows; returns their number."""
        tally, rows = self.tally, sum(len(work.tokens) for work in works)
        tally.steps += 1
        tally.rows += rows
        tally.prefilled += sum(len(work.tokens) for work in works if work.guesses is None)
        tally.step_rows.observe(rows)
        tally.step_sequences.observe(len(works))
        return rows

    def _count_times(self, ended: float) -> None:
        tally, waited = self.tally, self._guessing.waited
        tally.schedule_s += self._ran - self._began - waited
        tally.draft_wait_s += waited
        tally.run_s += ended - self._ran
