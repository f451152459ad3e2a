"""Grammars that verifiers died of: every gateway of the mesh refuses them for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from outrider.mesh.bus import Bus, Message
from outrider.mesh.errors import InvalidRequest
from outrider.mesh.telemetry import get_logger
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.subjects import GRAMMARS_CONDEMNED

BAN_S = 600.0
"""Seconds for which a grammar is refused."""
_MOST = 4096

_log = get_logger("grammars")


class BannedGrammars:
    """SHA-256 digests of banned grammars, each with the end of its ban.

    Gateways publish a ban on `GRAMMARS_CONDEMNED`. A gateway that starts later does not learn of earlier bans.
    """

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus, self._clock = bus, clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

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

    def check(self, sampling: SamplingParams) -> None:
        """Raises `InvalidRequest` if the grammar of ``sampling`` is banned."""
        if self._until and sampling.HasField("grammar"):
            digest = _digest(sampling)
            if self._until.get(digest, 0.0) > self._clock():
                why = f"grammar is refused for up to {BAN_S / 60:g} minutes: verifiers died with a request for it"
                raise InvalidRequest(why, param="grammar")

    def hear(self, message: Message) -> None:
        """Adds the ban that another gateway published."""
        if len(message.data) == sha256().digest_size:
            self._add(message.data)

    def _add(self, digest: bytes) -> None:
        self._until[digest] = self._clock() + BAN_S
        self._until.move_to_end(digest)
        while len(self._until) > _MOST:
            self._until.popitem(last=False)


def _digest(sampling: SamplingParams) -> bytes:
    return sha256(sampling.grammar.SerializeToString(deterministic=True)).digest()
