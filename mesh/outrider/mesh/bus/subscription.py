"""One interest in a subject, which outlives the connections it is served by."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol

from nats.aio.msg import Msg
from outrider.mesh.bus.direct import DirectClient
from outrider.mesh.telemetry import continued, get_logger, tracing

_log = get_logger("bus")


class Message:
    """A message that arrived; ``reply`` is the subject that an answer goes to, or empty."""

    __slots__ = ("data", "headers", "reply", "subject")

    def __init__(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        self.subject = subject
        self.data = data
        self.reply = reply
        self.headers = headers


class Attached(Protocol):
    """What listens on whichever connection there is."""

    async def attach(self, client: DirectClient) -> None:
        """Listens on ``client``, once."""


Callback = Callable[[Message], Awaitable[None] | None]


class Subscription:
    """Calls ``callback`` with one message after the other; made by `Bus.subscribe`.

    The callback is a plain or a coroutine function. The next message waits for it, and an exception in it is
    logged and costs only the message.
    """

    def __init__(self, subject: str, callback: Callback, queue: str) -> None:
        self.subject = subject
        self.queue = queue
        self._callback = callback
        self._client: DirectClient | None = None

    async def attach(self, client: DirectClient) -> None:
        """Subscribes on ``client``, once; the bus calls it again for a client that takes another's place."""
        if self._client is client:
            return
        self._client = client
        await client.subscribe(self.subject, queue=self.queue, cb=self._deliver)

    async def _deliver(self, raw: Msg) -> None:
        message = Message(raw.subject, raw.data, raw.reply, raw.headers)
        try:
            if tracing() and raw.headers:
                with continued(raw.headers, f"receive {self.subject}"):
                    await self._call(message)
            else:
                await self._call(message)
        except Exception:
            _log.exception("a subscriber failed", subject=self.subject)

    async def _call(self, message: Message) -> None:
        result = self._callback(message)
        if inspect.isawaitable(result):
            await result
