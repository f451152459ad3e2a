"""Messages that can be read again: a stream of JetStream's, bounded by age and size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors as js_errors
from nats.js import JetStreamContext, api
from outrider.mesh.errors import AlreadyExists, Unavailable

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_BATCH = 256
_IDLE_S = 30.0
_NAME_IN_USE = 10058
_NOT_THE_LAST = 10071
_FIRST = {"Nats-Expected-Last-Subject-Sequence": "0"}
_NO_JETSTREAM = "NATS has no JetStream, which stores this: start nats-server with --jetstream"


class Kept(msgspec.Struct, frozen=True):
    """What a journal keeps: messages on ``subject`` (with wildcards), the oldest of which give way.

    ``last_only`` keeps one message of each subject. ``keep_s`` is in seconds; ``keep_bytes`` counts what NATS stores.
    """

    name: str
    subject: str
    keep_s: float
    keep_bytes: int
    last_only: bool = False


class Journal:
    """Keeps what anybody publishes on some subjects; whoever publishes over core NATS waits for nothing.

    Calls raise `Unavailable` when the broker is away, has no JetStream or does not answer within ``timeout_s``.
    """

    def __init__(self, bus: Bus, kept: Kept, timeout_s: float = 2.0) -> None:
        self._bus, self._kept, self._timeout_s = bus, kept, timeout_s

    async def open(self) -> None:
        """Begins to keep, unless somebody has begun; a stream that an operator made is taken as it is."""
        kept = self._kept
        async with self._asking():
            try:
                await self._js.add_stream(
                    name=kept.name,
                    subjects=[kept.subject],
                    discard=api.DiscardPolicy.OLD,
                    max_age=kept.keep_s,
                    max_bytes=kept.keep_bytes,
                    max_msgs_per_subject=1 if kept.last_only else -1,
                    duplicate_window=min(kept.keep_s, 120.0),
                )
            except js_errors.BadRequestError as error:
                if error.err_code != _NAME_IN_USE:
                    raise

    async def add(self, subject: str, data: bytes, *, first: bool = False) -> None:
        """Publishes ``data`` and returns when it is stored.

        `AlreadyExists` where it has to be the ``first`` of its subject and is not.
        """
        async with self._asking():
            try:
                await self._js.publish(subject, data, headers=_FIRST if first else None)
            except js_errors.APIError as error:
                if error.err_code != _NOT_THE_LAST:
                    raise
                raise AlreadyExists(f"there is a message on {subject} already") from None

    async def read(self, subject: str) -> list[tuple[str, bytes]]:
        """Subject and data of all that is kept on ``subject`` (wildcards allowed), oldest first."""
        async with self._asking():
            subscription = await self._js.pull_subscribe(
                subject,
                stream=self._kept.name,
                config=api.ConsumerConfig(
                    ack_policy=api.AckPolicy.NONE, mem_storage=True, inactive_threshold=_IDLE_S, num_replicas=1
                ),
            )
            try:
                left = (await subscription.consumer_info()).num_pending or 0
                found: list[tuple[str, bytes]] = []
                while len(found) < left:
                    batch = await subscription.fetch(min(_BATCH, left - len(found)), self._timeout_s)
                    found += [(message.subject, message.data) for message in batch]
                return found
            finally:
                await subscription.unsubscribe()

    async def forget(self, subject: str) -> None:
        """Drops all that is kept on ``subject`` (wildcards allowed)."""
        async with self._asking():
            await self._js.purge_stream(self._kept.name, subject=subject)

    @property
    def _js(self) -> JetStreamContext:
        return self._bus.jetstream(self._timeout_s)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        if not self._bus.connected:
            raise Unavailable("NATS is not connected", retry_after=1.0)
        try:
            yield
        except (js_errors.NoStreamResponseError, js_errors.ServiceUnavailableError):
            raise Unavailable(_NO_JETSTREAM, retry_after=1.0) from None
        except nats.errors.Error as error:
            raise Unavailable(f"JetStream did not answer: {error}", retry_after=1.0) from None
