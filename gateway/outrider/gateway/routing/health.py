"""Which verifiers do not answer: circuit breakers, and deaths that gRPC health watches notice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from outrider.gateway import metrics
from outrider.mesh.registry import Member
from outrider.mesh.rpc import stub
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger

_FORGET_S = 600.0
"""Seconds after its last failure in which the breaker of a verifier that is gone is kept."""

_log = get_logger("breakers")


@dataclass(slots=True)
class _Breaker:
    failed_at: float = 0.0
    failures: int = 0
    open: bool = False
    probing: bool = False


class Breakers:
    """One circuit breaker per verifier.

    A breaker opens after ``failures`` unanswered calls in a row. The verifier then comes last for ``open_s`` seconds.
    After that, one request at a time probes it until one is answered. A verifier with an open breaker is still tried
    when no other verifier takes the request.
    """

    def __init__(self, failures: int, open_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._open_s, self._clock = failures, open_s, clock
        self._breakers: dict[str, _Breaker] = {}

    def order(self, instances: Sequence[str]) -> list[str]:
        """``instances``, those with an open breaker last."""
        return sorted(instances, key=self._comes_last)

    def note_request(self, instance: str) -> None:
        """Notes that a request is offered to ``instance``: a probe, if the breaker is open."""
        if (breaker := self._breakers.get(instance)) is not None and breaker.open:
            breaker.probing = True

    def note_answer(self, instance: str) -> None:
        """Notes that ``instance`` answered, even with a refusal; closes the breaker."""
        breaker = self._breakers.pop(instance, None)
        if breaker is not None and breaker.open:
            _log.info("a verifier answers again", verifier=instance)
            metrics.breakers.labels(instance).set(0)

    def note_failure(self, instance: str) -> None:
        """Notes that ``instance`` did not answer."""
        breaker = self._breakers.setdefault(instance, _Breaker())
        breaker.failures, breaker.failed_at, breaker.probing = breaker.failures + 1, self._clock(), False
        if breaker.failures >= self._most and not breaker.open:
            _log.warning("a verifier does not answer and is asked last", verifier=instance)
            metrics.breaker_openings.inc()
            metrics.breakers.labels(instance).set(1)
            breaker.open = True

    def note_cancellation(self, instance: str) -> None:
        """Notes that a request was cancelled before ``instance`` answered."""
        if (breaker := self._breakers.get(instance)) is not None:
            breaker.probing = False

    def keep(self, present: Iterable[str]) -> None:
        """Drops the breakers of verifiers that have long not been ``present``."""
        for instance in self._breakers.keys() - set(present):
            if self._clock() > self._breakers[instance].failed_at + _FORGET_S and self._breakers.pop(instance).open:
                metrics.breakers.remove(instance)

    def _comes_last(self, instance: str) -> bool:
        breaker = self._breakers.get(instance)
        if breaker is None or not breaker.open:
            return False
        return breaker.probing or self._clock() < breaker.failed_at + self._open_s


class HealthWatches:
    """One open health watch per verifier.

    ``on_lost`` is called with the instance of a verifier whose watch broke, or that drains: it says NOT_SERVING.

    The watch of a killed process breaks within a round trip, that of a frozen process within the channel's keepalive.
    """

    def __init__(self, tasks: Tasks, on_lost: Callable[[str], None]) -> None:
        self._tasks = tasks
        self._on_lost = on_lost
        self._watches: dict[str, asyncio.Task[None]] = {}

    def start(self, member: Member) -> None:
        """Opens a watch on ``member`` unless there is one."""
        if member.instance not in self._watches:
            self._watches[member.instance] = self._tasks.spawn(self._watch(member), "health watch")

    async def _watch(self, member: Member) -> None:
        call = stub(HealthStub, member.address, member.kind).Watch(HealthCheckRequest())
        try:
            async for response in call:
                if response.status == HealthCheckResponse.NOT_SERVING:
                    break
        except grpc.aio.AioRpcError:
            pass  # any error means that the watch broke
        finally:
            call.cancel()
            del self._watches[member.instance]
        self._on_lost(member.instance)
