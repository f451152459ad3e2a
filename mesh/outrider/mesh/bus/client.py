"""The connection to NATS that every service holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import nats.errors
from nats.js import JetStreamContext
from outrider.mesh.bus.connection import Connection
from outrider.mesh.bus.login import Credentials, Login
from outrider.mesh.bus.outbox import Outbox, Outgoing
from outrider.mesh.bus.subject import is_subject
from outrider.mesh.bus.subscription import Callback, Listener, Subscription
from outrider.mesh.bus.troubles import Troubles
from outrider.mesh.errors import InvalidRequest, Unavailable
from outrider.mesh.security import Trust
from outrider.mesh.tasks import Tasks, within
from outrider.mesh.telemetry import current_headers, gauge, get_logger, tracing
from outrider.mesh.urls import without_passwords

OUTBOX_BYTES = 16 << 20
_RETRY_S = 0.25
_LOG_EVERY_S = 5.0
_CLOSE_S = 3.0
_FLUSH_S = 2
_AWAY_ERRORS = (
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.OutboundBufferLimitError,
)

_log = get_logger("bus")
_connected = gauge("bus_connected", "1 while NATS is connected.")
_subscriptions = gauge("bus_subscriptions", "What this process listens to on NATS.")


class Bus:
    """Publish and subscribe over core NATS; it reconnects for ever.

    `publish` never waits: messages go to a bounded outbox that one task empties. While the broker is away, a full
    outbox drops its oldest messages. Subscriptions outlive any connection.

    Attributes:
        replicas: servers of a cluster that keep each stream and bucket which is created here.
    """

    def __init__(self, tasks: Tasks | None = None, replicas: int = 1) -> None:
        self.replicas = replicas
        self._url = self._shown_url = ""
        self._name = ""
        self._troubles = Troubles("", "")
        self._credentials: Credentials | None = None
        self._trust: Trust | None = None
        self._client = Connection()
        self._outbox = Outbox(OUTBOX_BYTES)
        self._wake = asyncio.Event()
        self._up = asyncio.Event()
        self._listeners: dict[Listener, None] = {}
        _subscriptions.set_function(lambda: len(self._listeners))
        self._callbacks: list[Callable[[bool], None]] = []
        self._tasks = tasks or Tasks()
        self._sender: asyncio.Task[None] | None = None
        self._open = False
        self._closing = False

    @property
    def connected(self) -> bool:
        """Whether this process is connected to the broker, as far as it knows."""
        return self._up.is_set()

    @property
    def clustered(self) -> bool:
        """Whether the broker is a server of a cluster."""
        return self._client.clustered

    @property
    def max_payload(self) -> int:
        """Most bytes of one message that the broker takes."""
        return self._client.max_payload

    async def connect(
        self, url: str, name: str, wait_s: float, login: Login | None = None, trust: Trust | None = None
    ) -> None:
        """Joins NATS at ``url`` (several, with commas) as ``name``, with ``login`` where the broker asks who it is.

        A broker at a ``tls://`` URL has to have a certificate that ``trust`` accepts. Credentials and authorities are
        read anew for each connection.

        `Unavailable` when no broker answers within ``wait_s`` seconds; the log says every few seconds that it waits.
        `ConfigError` for credentials that cannot be read.
        """
        self._url, self._shown_url, self._name = url, without_passwords(url), name
        self._trust, self._credentials = trust, Credentials(login) if login else None
        self._troubles = Troubles(self._shown_url, login.user if login else "")
        log_task = asyncio.create_task(self._log_waiting(wait_s))
        try:
            await within(wait_s, self._join())
        except TimeoutError:
            self._client.abandon()
            raise Unavailable(self._troubles.why_not_joined(wait_s)) from None
        finally:
            log_task.cancel()
        self._troubles.started = True
        self._sender = self._tasks.spawn(self._send_for_ever(), "bus sender")

    def publish(self, subject: str, data: bytes) -> None:
        """Queues ``data`` to be sent, and returns at once, whether or not the broker is there.

        `InvalidRequest` for more bytes than the broker takes in one message, `ValueError` for a malformed subject.
        """
        self._check(subject, data)
        self._outbox.put(Outgoing(subject, data, current_headers() if tracing() else None))
        self._wake.set()

    async def subscribe(self, subject: str, callback: Callback, queue: str = "") -> Subscription:
        """Calls ``callback`` for each message on ``subject`` (wildcards allowed), until unsubscribed.

        Members of one ``queue`` share the messages between them. On return the broker knows the subscription; a
        broker that is away knows it once it is back.
        """
        self._check(subject)
        subscription = Subscription(self, subject, callback, queue)
        try:
            await self.add_listener(subscription)
        except BaseException:
            await subscription.unsubscribe()
            raise
        return subscription

    async def add_listener(self, listener: Listener) -> None:
        """Attaches ``listener`` to this connection and to all later ones."""
        self._listeners[listener] = None
        with suppress(*_AWAY_ERRORS, TimeoutError):
            if self._open:
                await listener.attach(self._client)
            if self.connected:
                await asyncio.sleep(0)  # nats-py sends a subscription a turn later, and the PING of `flush` at once
                await self._client.flush(timeout=_FLUSH_S)

    def remove_listener(self, listener: Listener) -> None:
        """Attaches ``listener`` to no later connection."""
        self._listeners.pop(listener, None)

    def jetstream(self, timeout: float) -> JetStreamContext:
        """JetStream over the current connection; each of its calls may take ``timeout`` seconds."""
        return self._client.jetstream(timeout=timeout)

    async def ask(self, subject: str, timeout: float) -> bytes:
        """The broker's own answer on ``subject``; `Unavailable` if there is none within ``timeout`` seconds."""
        try:
            return (await self._client.request(subject, b"", timeout=timeout)).data
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise Unavailable(f"the broker does not answer on {subject}: {error}") from None

    def on_change(self, callback: Callable[[bool], None]) -> None:
        """Calls ``callback`` with True when the broker is back and with False when it is lost."""
        self._callbacks.append(callback)

    async def close(self) -> None:
        """Sends queued messages, lets subscribers finish and disconnects; takes at most a few seconds."""
        self._closing = True
        if self._sender is None:
            return
        if self.connected:
            await self._send_and_drain()
        self._sender.cancel()
        await self._client.close()
        self._set_connected(False)

    async def _send_and_drain(self) -> None:
        with suppress(TimeoutError, nats.errors.Error):
            async with asyncio.timeout(_CLOSE_S):
                await self._send_queued()
                await self._client.drain()

    async def _join(self) -> None:
        self._client = Connection(self._credentials, self._trust)
        await self._client.connect(
            self._url.split(","),
            name=self._name,
            **self._options(),
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            connect_timeout=2,
            reconnect_time_wait=_RETRY_S,  # type: ignore[arg-type] # nats-py only passes it to `sleep`
            max_reconnect_attempts=-1,
            ping_interval=2,
            max_outstanding_pings=2,
        )
        self._open = True
        for listener in list(self._listeners):
            await listener.attach(self._client)
        self._set_connected(True)

    def _options(self) -> dict[str, Any]:
        options = self._credentials.read() if self._credentials else {}
        return options | ({"tls_hostname": self._trust.name} if self._trust and self._trust.name else {})

    async def _rejoin(self) -> None:
        while not self._closing:
            try:
                return await self._join()
            except (nats.errors.Error, OSError) as error:
                _log.warning("NATS could not be joined again", why=str(error))
                await asyncio.sleep(_RETRY_S)

    async def _log_waiting(self, wait_s: float) -> None:
        started = time.monotonic()
        await asyncio.sleep(min(1.0, wait_s / 2))
        while True:
            left = max(0.0, wait_s - (time.monotonic() - started))
            _log.warning("waiting for NATS", url=self._shown_url, gives_up_in_s=round(left, 1), why=self._troubles.last)
            await asyncio.sleep(_LOG_EVERY_S)

    async def _send_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._send_queued()

    async def _send_queued(self) -> None:
        while self._outbox:
            await self._up.wait()
            message = self._outbox.take()
            try:
                await self._client.publish(message.subject, message.data, headers=message.headers)
            except _AWAY_ERRORS:
                self._outbox.put_back(message)
                await asyncio.sleep(_RETRY_S)
            except nats.errors.Error as error:
                _log.error("a message was not sent", subject=message.subject, bytes=len(message.data), why=str(error))

    async def _on_error(self, error: Exception) -> None:
        self._troubles.note(error, self.connected)

    async def _on_disconnected(self) -> None:
        self._set_connected(False)

    async def _on_reconnected(self) -> None:
        self._set_connected(True)

    async def _on_closed(self) -> None:
        """Connects anew: nats-py never reconnects after some of the broker's errors."""
        self._open = False
        if not self._closing:
            self._tasks.spawn(self._rejoin(), "bus reconnection")

    def _set_connected(self, up: bool) -> None:
        if up == self.connected:
            return
        _connected.set(up)
        if up:
            self._troubles.note_connected()
            self._up.set()
        else:
            self._up.clear()
        if not self._closing:
            _log.info("NATS is connected" if up else "NATS is lost", url=self._shown_url)
        for listener in self._callbacks:
            listener(up)

    def _check(self, subject: str, data: bytes = b"") -> None:
        if not is_subject(subject):
            raise ValueError(f"{subject!r} is no NATS subject")
        if len(data) > self.max_payload:
            raise InvalidRequest(
                f"{len(data)} bytes on {subject} are over NATS's limit of {self.max_payload} bytes a message"
            )
