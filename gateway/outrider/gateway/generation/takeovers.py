"""Gateways telling one another which streams they have taken over."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from outrider.gateway.generation.ledger import Key
from outrider.mesh.bus import Bus, Message

SUBJECT = "outrider.streams.taken"


class _Note(msgspec.Struct, array_like=True, frozen=True):
    key: Key
    gateway: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Note).decode


class Handover:
    """Tells others of a request that this gateway takes; ``taken`` hears of those that another has taken."""

    def __init__(self, bus: Bus, instance: str, taken: Callable[[Key], None]) -> None:
        self._bus, self._instance, self._taken = bus, instance, taken

    async def open(self) -> None:
        """Listens from now on."""
        await self._bus.subscribe(SUBJECT, self._on_message)

    def take(self, key: Key) -> None:
        """Tells that the request is ours now."""
        self._bus.publish(SUBJECT, _encode(_Note(key, self._instance)))

    def _on_message(self, message: Message) -> None:
        note = _decode(message.data)
        if note.gateway != self._instance:
            self._taken(note.key)
