"""Ends running requests whose caller is no longer valid."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable

from outrider.gateway import metrics
from outrider.gateway.admission.caller import Caller
from outrider.gateway.identity.refusals import EndedKey
from outrider.gateway.request.flight import Flight
from outrider.gateway.request.in_flight import Flights
from outrider.mesh.errors import Unavailable
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import audit, get_logger

SWEEP_S = 1.0
"""Seconds between two checks of all callers."""

_log = get_logger("withdrawal")


class Withdrawal:
    """Ends the flights of callers for whom ``check`` raises `EndedKey`; checks each caller once, not each flight."""

    def __init__(self, flights: Flights, check: Callable[[Caller], Awaitable[None]], tasks: Tasks) -> None:
        self._flights, self._check, self._tasks = flights, check, tasks

    async def run(self) -> None:
        """Checks the callers of all flights every `SWEEP_S` seconds."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self._sweep()

    async def _sweep(self) -> None:
        by_caller: dict[object, list[Flight]] = defaultdict(list)
        for flight in self._flights:
            caller = flight.caller
            if caller.credential is not None:
                by_caller[caller.tenant, caller.credential].append(flight)
        await asyncio.gather(*map(self._check_caller, by_caller.values()))

    async def _check_caller(self, flights: list[Flight]) -> None:
        try:
            await self._check(flights[0].caller)
        except EndedKey as why:
            self._withdraw(flights, why)
        except Unavailable:
            pass  # nothing says that the caller has ended
        except Exception:
            _log.exception("a caller cannot be checked", tenant=flights[0].caller.tenant)

    def _withdraw(self, flights: Iterable[Flight], why: EndedKey) -> None:
        """Ends ``flights`` even if no reader asks for more; one without a verifier is ended by its API."""
        for flight in flights:
            if not flight.withdraw(why):
                continue
            _log.info("a request is ended", request=flight.key.request, tenant=flight.key.tenant, why=why.message)
            metrics.withdrawn.inc()
            audit(
                "stream_revoked",
                actor=flight.caller.actor,
                tenant=flight.key.tenant,
                reason=why.message,
                request=flight.key.request,
            )
            if flight.placed:
                self._tasks.spawn(self._flights.end(flight), "withdrawal")
