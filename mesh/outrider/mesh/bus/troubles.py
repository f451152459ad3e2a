"""What is wrong between this process and the broker: told in the log, and kept as the reason of a failed start."""

from __future__ import annotations

import time

from outrider.mesh.bus.connection import why_refused
from outrider.mesh.bus.forbidden import ForbiddenLog
from outrider.mesh.telemetry import counter, get_logger

_LOG_EVERY_S = 5.0

_log = get_logger("bus")
_errors = counter("bus_errors", "Errors that NATS or its client reported.", ["error"])


class Troubles:
    """Errors of the connection to the broker at ``url`` of one user.

    Attributes:
        last: the reason to show; a refusal stays the reason, since a lost connection follows it.
        started: whether the process was connected once. Before, nothing is logged here.
    """

    def __init__(self, url: str, user: str) -> None:
        self._url, self._forbidden = url, ForbiddenLog(user)
        self.last = self._refusal = ""
        self.started = False
        self._quiet_until = 0.0

    def note(self, error: Exception, connected: bool) -> None:
        """Counts an error, and logs it: those of a broker that is away only if the broker refuses this process."""
        if self._forbidden.note(error):
            return _errors.labels("Forbidden").inc()
        name, refusal = type(error).__name__, why_refused(error, self._url)
        _errors.labels(name).inc()
        is_new = bool(refusal) and refusal != self._refusal
        self._refusal = refusal or self._refusal
        self.last = self._refusal or str(error) or name
        if self.started and (is_new or ((connected or self._refusal) and time.monotonic() >= self._quiet_until)):
            self._quiet_until = time.monotonic() + _LOG_EVERY_S
            _log.warning("NATS reported an error", error=name, why=self.last)

    def note_connected(self) -> None:
        """Ends a refusal."""
        self._refusal = ""

    def why_not_joined(self, wait_s: float) -> str:
        """Why the broker was not joined within ``wait_s`` seconds, in one sentence."""
        if self._refusal:
            return self._refusal
        return f"NATS at {self._url} was not reached within {wait_s:g} s{f': {self.last}' if self.last else ''}"
