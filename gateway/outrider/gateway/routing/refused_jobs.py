"""Jobs that no verifier gets: with a grammar that verifiers died of, and of a tenant that was erased meanwhile."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from math import inf

from outrider.gateway.routing.job import Job
from outrider.mesh.bus import Bus, Message
from outrider.mesh.errors import InvalidRequest, PermissionDenied
from outrider.mesh.telemetry import get_logger
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.subjects import GRAMMARS_CONDEMNED

BAN_S = 600.0
"""Seconds for which a grammar is refused."""
_MOST = 4096

_log = get_logger("grammars")


class RefusedJobs:
    """SHA-256 digests of banned grammars, each with the end of its ban; and when tenants were erased.

    Gateways publish a ban on `GRAMMARS_CONDEMNED`. A gateway that starts later does not learn of earlier bans.

    Attributes:
        some: whether any job may be refused.
    """

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus, self._clock = bus, clock
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._erased_at: dict[str, float] = {}
        self.some = False

    async def open(self) -> None:
        """Subscribes to the bans of other gateways."""
        await self._bus.subscribe(GRAMMARS_CONDEMNED, self.hear)

    def ban(self, sampling: SamplingParams) -> None:
        """Bans the grammar of ``sampling`` at all gateways, if there is a grammar."""
        if sampling.HasField("grammar"):
            digest = _digest(sampling)
            _log.error("verifiers died of a grammar", digest=digest.hex())
            self._add(digest)
            self._bus.publish(GRAMMARS_CONDEMNED, digest)

    def erase(self, tenant: str) -> None:
        """Notes that the tenant is erased now: its jobs that began before are refused."""
        self._erased_at[tenant] = self._clock()
        self.some = True

    def check(self, job: Job, *, begun: bool) -> None:
        """Raises `PermissionDenied` for an erased tenant, `InvalidRequest` for a banned grammar without a token yet."""
        if job.begun <= self._erased_at.get(job.caller.tenant, -inf):
            raise PermissionDenied("the tenant was erased")
        if begun or not job.sampling.HasField("grammar"):
            return
        if self._until.get(_digest(job.sampling), 0.0) > self._clock():
            why = f"grammar is refused for up to {BAN_S / 60:g} minutes: verifiers died with a request for it"
            raise InvalidRequest(why, param="grammar")

    def hear(self, message: Message) -> None:
        """Adds the ban that another gateway published."""
        if len(message.data) == sha256().digest_size:
            self._add(message.data)

    def _add(self, digest: bytes) -> None:
        self._until[digest] = self._clock() + BAN_S
        self.some = True
        self._until.move_to_end(digest)
        while len(self._until) > _MOST:
            self._until.popitem(last=False)


def _digest(sampling: SamplingParams) -> bytes:
    return sha256(sampling.grammar.SerializeToString(deterministic=True)).digest()
