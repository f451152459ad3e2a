"""Erases what a gateway, and the broker on behalf of gateways, keep of a tenant."""

from __future__ import annotations

from collections.abc import Collection

from outrider.gateway.admission.charge import BillStore
from outrider.gateway.ledger.catalog import StreamCatalog
from outrider.gateway.request.flight import Flight
from outrider.gateway.routing.refused_jobs import RefusedJobs
from outrider.gateway.stream.pool import AnswerPool
from outrider.mesh.errors import Unavailable


class TenantErasure:
    """Ends the flights of a tenant, and deletes the tenant's records, frames, bills and kept answers.

    Verifiers end the requests that they have; ``refused`` keeps all others from a verifier.
    """

    def __init__(
        self,
        flights: Collection[Flight],
        catalog: StreamCatalog,
        pool: AnswerPool,
        bills: BillStore,
        refused: RefusedJobs,
    ) -> None:
        self._flights, self._catalog, self._pool, self._bills, self._refused = flights, catalog, pool, bills, refused

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        """Erases what is older than ``before``, in seconds since 1970; returns how many of what.

        Raises `Unavailable` while a flight of the tenant has not ended, or if the broker does not answer.
        """
        self._refused.erase(tenant)
        answers = self._pool.forget(tenant)
        if any(flight.key.tenant == tenant for flight in self._flights):
            raise Unavailable("streams of the tenant have not ended yet", retry_after=1.0)
        await self._catalog.writer.erase(tenant)
        records, frames = await self._catalog.ledger.erase(tenant, before)
        bills = await self._bills.erase(tenant, before)
        return {"kept answers": answers, "records": records, "frames": frames, "bills": bills}
