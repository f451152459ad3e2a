"""Logs what the broker forbids: it tells nobody else, a forbidden publication vanishes and a request times out."""

from __future__ import annotations

import re
import time

from outrider.mesh.telemetry import get_logger

_EVERY_S = 5.0
_FORBIDDEN = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
"""What the broker says; nats-py turns capitals into small letters."""

_log = get_logger("bus")


class ForbiddenLog:
    """Logs each subject that is forbidden to ``user`` as an error, at most every few seconds."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._quiet_until: dict[str, float] = {}

    def note(self, error: Exception) -> bool:
        """Whether ``error`` is about a forbidden operation."""
        match = _FORBIDDEN.search(str(error))
        if match is None:
            return False
        operation, subject = match.groups()
        now = time.monotonic()
        if now >= self._quiet_until.get(subject, 0.0):
            self._quiet_until = {each: until for each, until in self._quiet_until.items() if until > now}
            self._quiet_until[subject] = now + _EVERY_S
            _log.error("the broker forbids this", operation=operation, subject=subject, user=self._user)
        return True
