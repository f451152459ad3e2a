"""Notices between gateways that one of them has taken over a stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from outrider.gateway.ledger.record import Key
from outrider.mesh.bus import Bus, Message
from outrider.wire.subjects import STREAMS_TAKEN


class _Notice(msgspec.Struct, array_like=True, frozen=True):
    key: Key
    gateway: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Notice).decode


class TakeoverNotices:
    """Announces the streams that this gateway takes over; ``on_taken`` is called for those that another one takes."""

    def __init__(self, bus: Bus, instance: str, on_taken: Callable[[Key], None]) -> None:
        self._bus, self._instance, self._on_taken = bus, instance, on_taken

    async def open(self) -> None:
        """Subscribes to the notices of other gateways."""
        await self._bus.subscribe(STREAMS_TAKEN, self._on_message)

    def announce(self, key: Key) -> None:
        """Tells other gateways that this gateway has taken over the stream."""
        self._bus.publish(STREAMS_TAKEN, _encode(_Notice(key, self._instance)))

    def _on_message(self, message: Message) -> None:
        notice = _decode(message.data)
        if notice.gateway != self._instance:
            self._on_taken(notice.key)
