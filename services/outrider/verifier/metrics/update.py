"""Copies the engine's counters to Prometheus."""

from __future__ import annotations

from outrider.engine.decode.engine import Engine
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import Acceptance
from outrider.verifier.metrics.guesses import GuessMetrics
from outrider.verifier.metrics.pages import PageMetrics
from outrider.verifier.metrics.requests import RequestMetrics
from outrider.verifier.metrics.steps import StepMetrics


class Metrics:
    """Copies the engine's tallies to Prometheus.

    ``model`` is the served name, ``peak`` the device's peak in operations a second, or 0.

    Attributes:
        publish_s: seconds that publishing took, in all.
    """

    def __init__(self, model: str, engine: Engine, peak: float = 0.0) -> None:
        self._engine = engine
        self._steps, self._requests = StepMetrics(model, engine, peak), RequestMetrics(model, engine)
        self._guesses, self._pages = GuessMetrics(model, engine.tally), PageMetrics(model)
        self.publish_s = 0.0

    def update(self) -> None:
        """Adds the changes since the last call."""
        engine = self._engine
        self._steps.update(self.publish_s)
        self._requests.update()
        self._guesses.update(engine.tally.guesses, engine.guessing.paused, engine.guessing.lost)
        self._pages.update(engine.scheduler)

    def cost(self, curve: CostCurve) -> None:
        """Notes the measured seconds of steps."""
        self._steps.cost(curve)

    def rule(self, rule: Acceptance) -> None:
        """Notes the rule of acceptance."""
        self._guesses.rule(rule)

    def refused(self, drafter: str) -> None:
        """Counts a version of a drafter that cannot be used."""
        self._guesses.refused(drafter)

    def unmeetable(self) -> None:
        """Counts a request refused for its deadline."""
        self._requests.unmeetable()
