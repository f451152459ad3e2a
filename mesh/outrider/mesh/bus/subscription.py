"""A subscription to a subject, which outlives any connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from opentelemetry.trace import SpanKind
from outrider.mesh.telemetry import TRACEPARENT, continued_span, get_logger, tracing

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_log = get_logger("bus")


class Message:
    """A message that arrived; ``reply`` is the subject that an answer goes to, or empty."""

    __slots__ = ("data", "headers", "reply", "subject")

    def __init__(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        self.subject = subject
        self.data = data
        self.reply = reply
        self.headers = headers


class Listener(Protocol):
    """Something that the bus attaches to each of its connections."""

    async def attach(self, client: Client) -> None:
        """Listens on ``client``; a second call with the same client does nothing."""


Callback = Callable[[Message], Awaitable[None] | None]


class Subscription:
    """Calls ``callback`` with one message after the other; made by `Bus.subscribe`.

    The callback is a plain or a coroutine function. The next message waits for it, and an exception in it is
    logged and costs only the message.
    """

    def __init__(self, bus: Bus, subject: str, callback: Callback, queue: str) -> None:
        self.subject = subject
        self.queue = queue
        self._bus = bus
        self._callback = callback
        self._client: Client | None = None
        self._inner: Any = None

    async def attach(self, client: Client) -> None:
        """Subscribes on ``client``, once; the bus calls it again for each new client."""
        if self._client is client:
            return
        self._client = client
        self._inner = await client.subscribe(self.subject, queue=self.queue, cb=self._deliver)

    async def unsubscribe(self) -> None:
        """Stops delivery at once and discards messages that wait. May be called twice."""
        self._bus.remove_listener(self)
        inner, self._inner = self._inner, None  # nats-py's subscription refers to this one: leave no cycle behind
        with suppress(nats.errors.Error):
            if inner is not None:
                await inner.unsubscribe()

    async def _deliver(self, raw: Msg) -> None:
        message = Message(raw.subject, raw.data, raw.reply, raw.headers)
        try:
            with _span(raw) if tracing() else nullcontext():
                if (result := self._callback(message)) is not None:
                    await result
        except Exception:
            _log.exception("a subscriber failed", subject=self.subject)


def _span(raw: Msg) -> AbstractContextManager[object]:
    """The span of a message, as a part of the sender's trace; nothing for a sender without one."""
    if not raw.headers or TRACEPARENT not in raw.headers:
        return nullcontext()
    name = f"receive {raw.subject.partition('.')[0]}"  # without the parts that differ from request to request
    attributes = {"messaging.system": "nats", "messaging.destination.name": raw.subject}
    return continued_span(raw.headers, name, kind=SpanKind.CONSUMER, attributes=attributes)
