"""Shares of tenants over all verifiers of a model: each verifier tells the others what it served to each tenant."""

from __future__ import annotations

import asyncio

import msgspec
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.worker import Inbox
from outrider.mesh.bus import Bus, Message
from outrider.mesh.registry import Registry
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import get_logger
from outrider.wire.served import MOST_TENANTS, Served, Share, decode_served, encode_served, served_subject

EVERY_S = 1.0
_CROWD = 32
"""Verifiers of a model from which on each tells its service less often, so that each hears about so many messages a
second whatever their number."""

_log = get_logger("verifier")


class Shares:
    """Tells the service of this verifier, and adds that of the others to the tenants' counters.

    A verifier that tells nothing, such as one of an earlier version, is not counted. What a verifier has not told when
    it dies is not counted either: the service of one interval. While the broker is away, service is kept to be told.

    ``inbox`` is that of the engine's thread, the only one that touches the ``scheduler``.
    """

    def __init__(
        self, bus: Bus, registry: Registry, instance: str, model: str, inbox: Inbox, scheduler: Scheduler
    ) -> None:
        self._bus, self._registry = bus, registry
        self._instance, self._model = instance, model
        self._inbox, self._scheduler = inbox, scheduler

    async def start(self, tasks: Tasks) -> None:
        """Listens, and tells from now on."""
        await self._bus.subscribe(served_subject(self._model), self._on_served)
        tasks.spawn(self._tell_for_ever(), "shares")

    async def _tell_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if self._bus.connected and (shares := await asyncio.wrap_future(self._inbox.call(self._tell))):
                self._bus.publish(served_subject(self._model), encode_served(Served(self._instance, shares)))

    def _tell(self) -> dict[str, Share]:
        told = self._scheduler.counters.tell(self._scheduler.waiting.tenants, MOST_TENANTS)
        return {tenant: Share(*share) for tenant, share in told.items()}

    @property
    def _every_s(self) -> float:
        members = self._registry.members("verifier")
        verifiers = sum(1 for member in members if member.status.get("model") == self._model)
        return EVERY_S * max(1.0, verifiers / _CROWD)

    def _on_served(self, message: Message) -> None:
        try:
            served = decode_served(message.data)
        except msgspec.MsgspecError:
            _log.warning("news of service could not be read", bytes=len(message.data))
            return
        if served.instance != self._instance:
            every_s = self._every_s
            self._inbox.post(lambda: self._scheduler.counters.hear(served.shares, every_s))
