"""Tenants that were erased while requests of theirs were on their way to a verifier."""

from __future__ import annotations

import time
from math import inf

from outrider.gateway.routing.job import Job
from outrider.mesh.errors import PermissionDenied


class ErasedTenants:
    """Refuses the jobs of a tenant that began before the tenant's erasure."""

    def __init__(self) -> None:
        self._erased_at: dict[str, float] = {}

    def add(self, tenant: str) -> None:
        """Notes that the tenant is erased now."""
        self._erased_at[tenant] = time.monotonic()

    def check(self, job: Job) -> None:
        """Raises `PermissionDenied` if the job's tenant was erased after the job began."""
        if job.begun <= self._erased_at.get(job.caller.tenant, -inf):
            raise PermissionDenied("the tenant was erased")
