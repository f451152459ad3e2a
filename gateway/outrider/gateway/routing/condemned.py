"""Definitions of grammars that verifiers died of, of which gateways tell one another."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from outrider.mesh.bus import Bus, Message
from outrider.mesh.errors import InvalidRequest
from outrider.mesh.telemetry import get_logger
from outrider.v1.sampling_pb2 import SamplingParams

SUBJECT = "outrider.grammars.condemned"
KEPT_S = 600.0
"""Seconds for which a definition is refused."""
_MOST = 4096

_log = get_logger("condemned")


class Condemned:
    """What no verifier is asked for, until ten minutes have passed. A gateway that starts later does not know of it."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus, self._clock = bus, clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    async def open(self) -> None:
        """Listens from now on."""
        await self._bus.subscribe(SUBJECT, self.hear)

    def condemn(self, sampling: SamplingParams) -> None:
        """Has all gateways refuse the grammar of ``sampling``, if there is one."""
        if sampling.HasField("grammar"):
            digest = _digest(sampling)
            _log.error("verifiers died of a grammar", digest=digest.hex())
            self._keep(digest)
            self._bus.publish(SUBJECT, digest)

    def check(self, sampling: SamplingParams) -> None:
        """`InvalidRequest` where the grammar of ``sampling`` is condemned."""
        if self._until and sampling.HasField("grammar"):
            digest = _digest(sampling)
            if self._until.get(digest, 0.0) > self._clock():
                why = f"grammar is refused for up to {KEPT_S / 60:g} minutes: verifiers died with a request for it"
                raise InvalidRequest(why, param="grammar")

    def hear(self, message: Message) -> None:
        """Takes in what a gateway tells."""
        if len(message.data) == sha256().digest_size:
            self._keep(message.data)

    def _keep(self, digest: bytes) -> None:
        self._until[digest] = self._clock() + KEPT_S
        self._until.move_to_end(digest)
        while len(self._until) > _MOST:
            self._until.popitem(last=False)


def _digest(sampling: SamplingParams) -> bytes:
    return sha256(sampling.grammar.SerializeToString(deterministic=True)).digest()
