"""Verifiers that do not answer, told apart before each request has waited for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from outrider.gateway import metrics
from outrider.mesh.telemetry import get_logger

_FORGET_S = 600.0
"""So long after its last failure a verifier that is gone is forgotten."""

_log = get_logger("breakers")


@dataclass(slots=True)
class _Breaker:
    failed_at: float = 0.0
    failures: int = 0
    open: bool = False
    probing: bool = False


class Breakers:
    """A circuit breaker for each verifier.

    After ``failures`` calls in a row that it did not answer, a verifier is asked last for ``open_s`` seconds; then one
    request at a time probes it, until one is answered. It is asked last and never not at all: where no other takes a
    request, it is tried.
    """

    def __init__(self, failures: int, open_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._open_s, self._clock = failures, open_s, clock
        self._breakers: dict[str, _Breaker] = {}

    def order(self, instances: Sequence[str]) -> list[str]:
        """``instances`` with those last that are not to be asked if it can be helped."""
        return sorted(instances, key=self._shut_out)

    def asked(self, instance: str) -> None:
        """Notes that a request is offered to ``instance``: where its breaker is open, that is its probe."""
        if (breaker := self._breakers.get(instance)) is not None and breaker.open:
            breaker.probing = True

    def answered(self, instance: str) -> None:
        """Notes that ``instance`` answered, be it with a refusal."""
        breaker = self._breakers.pop(instance, None)
        if breaker is not None and breaker.open:
            _log.info("a verifier answers again", verifier=instance)
            metrics.breakers.labels(instance).set(0)

    def failed(self, instance: str) -> None:
        """Notes that ``instance`` did not answer."""
        breaker = self._breakers.setdefault(instance, _Breaker())
        breaker.failures, breaker.failed_at, breaker.probing = breaker.failures + 1, self._clock(), False
        if breaker.failures >= self._most and not breaker.open:
            _log.warning("a verifier does not answer and is asked last", verifier=instance)
            metrics.breaker_openings.inc()
            metrics.breakers.labels(instance).set(1)
            breaker.open = True

    def given_up(self, instance: str) -> None:
        """Notes that nobody waits for the answer of ``instance`` any more."""
        if (breaker := self._breakers.get(instance)) is not None:
            breaker.probing = False

    def keep(self, present: Iterable[str]) -> None:
        """Forgets verifiers that have not been ``present`` for long."""
        for instance in self._breakers.keys() - set(present):
            if self._clock() > self._breakers[instance].failed_at + _FORGET_S and self._breakers.pop(instance).open:
                metrics.breakers.remove(instance)

    def _shut_out(self, instance: str) -> bool:
        breaker = self._breakers.get(instance)
        if breaker is None or not breaker.open:
            return False
        return breaker.probing or self._clock() < breaker.failed_at + self._open_s
