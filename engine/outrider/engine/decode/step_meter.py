"""Measures steps, for estimates, speculation and telemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from time import perf_counter
from typing import Any

from outrider.engine.decode.outcome import Tally
from outrider.engine.decode.runner import Work
from outrider.engine.scheduling.estimate import Estimate
from outrider.engine.scheduling.plan import Plan
from outrider.engine.speculation.policy.guessing import Guessing
from outrider.engine.telemetry import StepWatch, Telemetry


class StepMeter:
    """Measures one step after another. ``clock`` gives seconds.

    A step that directly follows another begins when the other ended: the time between them is part of the step.

    Attributes:
        tally: running totals since start.
        spans: spans of the last step by request id, as `Telemetry` made them; None without any.
    """

    def __init__(
        self,
        guessing: Guessing,
        estimate: Estimate,
        telemetry: Telemetry,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._guessing, self._estimate, self._telemetry, self._clock = guessing, estimate, telemetry, clock
        self.tally = Tally.start(telemetry, guessing.counts)
        self._began = self._ended = self._ran = 0.0
        self._tokens = self._crowd = 0
        self._watch: StepWatch | None = None
        self.spans: Mapping[str, Any] | None = None

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
        self._watch = self._telemetry.step(works) if works else None

    def end(self, plan: Plan, works: Seq[Work], more: bool) -> float:
        """Ends the step; returns its seconds. With ``more`` work, the next step follows directly."""
        ended, tokens = self._clock(), self.tally.tokens - self._tokens
        seconds = ended - self._began
        rows = self._count(works, plan.prompt_rows)
        self._count_times(ended)
        self._guessing.time(plan, rows, seconds)
        self._estimate.step(
            rows=rows, prompt_rows=plan.prompt_rows, decoding=len(plan.decoding), tokens=tokens, seconds=seconds
        )
        waited, self.spans = self._guessing.waited, None
        if self._watch is not None:
            self.spans = self._watch.end(self.tally.steps, self._began, ended, waited)
        if self._crowd:
            self.tally.crowded(self._crowd, tokens, seconds)
        if works and not plan.prefilling and more:
            self._ended = ended
        return seconds

    def _count(self, works: Seq[Work], prompt_rows: int) -> int:
        """Counts the step and its rows; returns their number."""
        tally, rows = self.tally, sum([len(work.tokens) for work in works])
        tally.steps += 1
        tally.rows += rows
        tally.prefilled += prompt_rows
        tally.step_rows.observe(rows)
        tally.step_sequences.observe(len(works))
        return rows

    def _count_times(self, ended: float) -> None:
        tally, waited = self.tally, self._guessing.waited
        tally.schedule_s += self._ran - self._began - waited
        tally.draft_wait_s += waited
        tally.run_s += ended - self._ran
