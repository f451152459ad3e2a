"""Background work for the flights of a gateway: leases, records, and what happens when a dependency is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from outrider.gateway import metrics
from outrider.gateway.ledger.catalog import StreamCatalog
from outrider.gateway.request.flight import Flight
from outrider.gateway.routing.verifiers import Verifiers
from outrider.gateway.stream.pool import AnswerPool
from outrider.mesh.errors import Unavailable
from outrider.mesh.service import Mesh


class Upkeep:
    """Renews the leases of ``flights``, writes their missing records, and follows verifiers when the broker is lost.

    Drops answers in the ``pool``, and records that wait, when their time is over.

    ``lease_s`` is in seconds; a verifier drops a request whose lease is not renewed in time.
    """

    def __init__(
        self,
        mesh: Mesh,
        verifiers: Verifiers,
        catalog: StreamCatalog,
        pool: AnswerPool,
        flights: Collection[Flight],
        lease_s: float,
    ) -> None:
        self._pool = pool
        self._tasks, self._verifiers, self._flights = mesh.tasks, verifiers, flights
        self._catalog, self._period_s = catalog, lease_s / 3
        metrics.ledger_failing.set_function(lambda: catalog.trouble is not None)
        metrics.waiting_records.set_function(self._waiting_records)
        mesh.bus.on_change(self._on_broker)
        mesh.tasks.spawn(self._renew_for_ever(), "leases")
        mesh.tasks.spawn(self._tend_for_ever(), "ledger")

    def renew(self, flights: Iterable[Flight]) -> None:
        """Renews the leases of ``flights`` now."""
        streams = [stream for flight in flights for stream in flight.streams]
        self._verifiers.renew([lease for stream in streams if (lease := stream.lease) is not None])

    def follow(self, reason: str, instance: str | None = None) -> None:
        """Follows the verifiers of all streams, or of those on ``instance``; ``reason`` labels the metric."""
        for stream in [stream for flight in self._flights for stream in flight.streams]:
            if instance in (None, stream.verifier):
                stream.follow(reason)

    async def _renew_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            self.renew(self._flights)
            self._pool.expire()
            self._catalog.writer.expire()
            self._verifiers.confirm_records(self._catalog.writer.take_confirmed())

    async def _tend_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            await self._tend()

    async def _tend(self) -> None:
        """Repairs the ledger if it can, and writes the records that the ledger lacks."""
        await self._catalog.ledger.tend()
        if self._catalog.trouble is None:
            for flight in self._flights:
                if flight.recording.behind:
                    flight.recording.write()
            self._catalog.writer.write_waiting()

    def _on_broker(self, connected: bool) -> None:
        if connected:
            self._tasks.spawn(self._tend(), "ledger")
        else:
            self._catalog.ledger.fail(Unavailable("NATS is not connected"))
            self.follow("disconnected")

    def _waiting_records(self) -> int:
        return len(self._catalog.writer) + sum(flight.recording.behind for flight in self._flights)
