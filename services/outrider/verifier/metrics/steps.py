"""Metrics of steps: their number, rows and seconds, and the use of the device's peak."""

from __future__ import annotations

import time

from outrider.engine.decode.engine import Engine
from outrider.engine.decode.outcome import ROWS, Tally
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.mesh.telemetry import counter, distributions, gauge
from outrider.verifier.metrics.totals import Totals, shown

_MODEL = ["model"]
_STEPS = counter("verifier_steps", "Forward passes of the target.", _MODEL)
_ROWS = counter("verifier_rows", "Rows over all forward passes.", _MODEL)
_TOKENS = counter("verifier_tokens", "Tokens generated.", _MODEL)
_PREFILLED = counter("verifier_prefilled_tokens", "Prompt tokens computed.", _MODEL)
_CROWDED_STEPS = counter("verifier_crowded_steps", "Forward passes while requests waited.", _MODEL)
_CROWDED = counter(
    "verifier_crowded_sequences", "Running sequences over the forward passes while requests waited.", _MODEL
)
_CROWDED_TOKENS = counter("verifier_crowded_tokens", "Tokens generated while requests waited.", _MODEL)
_CROWDED_SECONDS = counter("verifier_crowded_seconds", "Time of forward passes while requests waited.", _MODEL)
_STEP_ROWS = distributions("verifier_step_rows", "Rows of a step.", _MODEL, ROWS)
_STEP_SEQUENCES = distributions("verifier_step_sequences", "Sequences of a step.", _MODEL, ROWS)
_PARTS = counter(
    "verifier_step_part_seconds",
    "Time of steps, by part: schedule (and all between two steps), draft_wait (for local drafters), forward, sample "
    "(on a GPU, where it waits for the forward pass, with that), commit, and publish, which runs beside the next step.",
    ["model", "part"],
)
_FLOPS = gauge(
    "verifier_flops_utilization",
    "Share of verifier.peak_tflops that the rows of the last seconds used, two operations for each weight and row; "
    "absent without that setting.",
    _MODEL,
)
_COST = gauge("verifier_step_cost_seconds", "Time of a step of so many rows, measured at the start.", ["model", "rows"])
_WINDOW_S = 5.0
"""Seconds over which the use of the peak is measured, at least."""


class StepMetrics:
    """Copies the totals of steps. ``peak`` is the device's peak in operations a second; 0 for unknown."""

    def __init__(self, model: str, engine: Engine, peak: float) -> None:
        self._model, self._engine, self._totals = model, engine, Totals()
        self._peak, self._since, self._rows = peak, time.monotonic(), 0
        self._operations = 2 * engine.runner.model.config.row_weights
        _STEP_ROWS.show(shown(engine.tally.step_rows), model)
        _STEP_SEQUENCES.show(shown(engine.tally.step_sequences), model)

    def cost(self, curve: CostCurve) -> None:
        """Shows the measured points of ``curve``."""
        for rows, seconds in zip(curve.rows, curve.seconds, strict=True):
            _COST.labels(self._model, str(rows)).set(seconds)

    def update(self, publish_s: float) -> None:
        """Adds the changes since the last call; ``publish_s`` is the total time of publishing."""
        tally = self._engine.tally
        totals = {
            _STEPS: tally.steps,
            _ROWS: tally.rows,
            _TOKENS: tally.tokens,
            _PREFILLED: tally.prefilled,
            _CROWDED_STEPS: tally.crowded_steps,
            _CROWDED: tally.crowded_sequences,
            _CROWDED_TOKENS: tally.crowded_tokens,
            _CROWDED_SECONDS: tally.crowded_seconds,
        }
        self._totals.bring_all(totals, self._model)
        self._update_parts(tally, publish_s)
        if self._peak:
            self._update_flops(tally.rows)

    def _update_parts(self, tally: Tally, publish_s: float) -> None:
        times = self._engine.runner.times
        parts = {
            "schedule": tally.schedule_s,
            "draft_wait": tally.draft_wait_s,
            "forward": times.forward_s,
            "sample": times.sample_s,
            "commit": tally.run_s - times.forward_s - times.sample_s,
            "publish": publish_s,
        }
        for part, seconds in parts.items():
            self._totals.bring(_PARTS, seconds, self._model, part)

    def _update_flops(self, rows: int) -> None:
        now = time.monotonic()
        if now - self._since >= _WINDOW_S:
            used = (rows - self._rows) * self._operations / (now - self._since)
            _FLOPS.labels(self._model).set(used / self._peak)
            self._since, self._rows = now, rows
