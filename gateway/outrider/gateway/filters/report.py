"""Tells the log what filters do, and the audit log of texts that they end."""

from __future__ import annotations

from outrider.gateway.filters.filter import Passed
from outrider.mesh.telemetry import audit, get_logger

_log = get_logger("filters")


class Report:
    """Tells of each kind of change of one text, and of its end, once. The text itself is told to nobody."""

    def __init__(self, tenant: str, request: str) -> None:
        self._tenant, self._request = tenant, request
        self._told: set[str] = set()

    def __call__(self, passed: Passed) -> None:
        """Tells what is new in ``passed``."""
        for what in passed.changes:
            self._tell("a filter changed a text", what)
        if passed.ended:
            self._tell("a filter ended a text", passed.ended)
            audit("stream_filtered", tenant=self._tenant, subject=f"filter {passed.ended}", request=self._request)

    def _tell(self, event: str, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.info(event, filter=what, tenant=self._tenant, request=self._request)


def tell_nobody(passed: Passed) -> None:
    """In the place of a `Report`, where a text was told of before."""
