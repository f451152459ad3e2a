"""The events of an engine's steps. A service makes metrics, traces and a time line of them; a library drops them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from outrider.engine.decode.runner import Work
    from outrider.engine.requests.sequence import Sequence as Answering
    from outrider.engine.speculation import DraftTree


class Distribution(Protocol):
    """Counts values, such as the rows of steps."""

    def observe(self, value: float, times: int = 1) -> None:
        """Adds a value so many ``times``."""


class StepWatch(Protocol):
    """A step that is about to run."""

    def end(self, number: int, began: float, ended: float, waited: float) -> Mapping[str, Any] | None:
        """Notes the end of the step called ``number``; returns the step's span by request id, if there are any.

        ``began`` and ``ended`` are times of the engine's clock; the step waited ``waited`` seconds for local drafters.
        """


class Telemetry(Protocol):
    """Receives the events of an engine, in the engine's thread."""

    def distribution(self, bounds: Sequence[float]) -> Distribution:
        """A new, empty distribution, with these upper bounds, ascending."""

    def step(self, works: Sequence[Work]) -> StepWatch | None:
        """A step is about to run ``works``; None if the telemetry does not follow it."""

    def offered(self, sequence: Answering, tree: DraftTree, source: str, behind: int, kept: bool) -> None:
        """A remote drafter offered a tree that lacks the sequence's last ``behind`` tokens; ``kept`` if it agrees."""


class _Nothing:
    def observe(self, value: float, times: int = 1) -> None:
        """See `Distribution`."""


class NoTelemetry:
    """A `Telemetry` that drops everything."""

    def distribution(self, bounds: Sequence[float]) -> Distribution:
        """See `Telemetry`."""
        return _Nothing()

    def step(self, works: Sequence[Work]) -> StepWatch | None:
        """See `Telemetry`."""
        return None

    def offered(self, sequence: Answering, tree: DraftTree, source: str, behind: int, kept: bool) -> None:
        """See `Telemetry`."""
