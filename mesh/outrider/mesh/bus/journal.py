"""Messages that can be read again: a stream of JetStream's, bounded by age and size."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors as js_errors
from nats.js import JetStreamContext, api
from outrider.mesh.errors import AlreadyExists, Unavailable
from outrider.mesh.telemetry import get_logger

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_BATCH = 256
_IDLE_S = 30.0
_NAME_IN_USE = 10058
_SUBJECTS_IN_USE = 10065
_NOT_THE_LAST = 10071
_NO_ROOM = 10023
_FIRST = {"Nats-Expected-Last-Subject-Sequence": "0"}
_NO_JETSTREAM = "NATS has no JetStream, which stores this: start nats-server with --jetstream"
_FULL = "JetStream has no room left, by the limits that nats-server was started with"
_SCRATCH_BYTES = 256 << 10
"""Free room that a stream has to find before it takes the place of another."""

_RETIRED = "outrider.retired"

_log = get_logger("journal")


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

    After a failed write to its disk, nats-server refuses all writes to that stream until it is restarted, however much
    space there is (as of version 2.14). `tend` then puts a new stream in its place. The old one is retired: it captures
    nothing, is still read, and is deleted once all it holds is too old.
    """

    def __init__(self, bus: Bus, kept: Kept, timeout_s: float = 2.0) -> None:
        self._bus, self._kept, self._timeout_s = bus, kept, timeout_s

    async def open(self) -> None:
        """Begins to keep, unless somebody has begun; a stream that an operator made is taken as it is."""
        async with self._asking():
            try:
                await self._js.add_stream(self._config)
            except js_errors.BadRequestError as error:
                if error.err_code not in (_NAME_IN_USE, _SUBJECTS_IN_USE):
                    raise

    async def tend(self) -> None:
        """Returns where writes are stored, in a new stream if need be; `Unavailable` where there is no room."""
        names = await self._names()
        if not names:
            return await self.open()
        await self._delete_old(names[:-1])
        try:
            await self._try(names[-1])
        except Unavailable:
            if not await self._has_room():
                raise
            await self._try_or_replace(names[-1])

    async def add(self, subject: str, data: bytes, *, first: bool = False) -> None:
        """Publishes ``data`` and returns when it is stored.

        `AlreadyExists` where it has to be the ``first`` of its subject and is not.
        """
        if first and len(names := await self._names()) > 1 and await self._read(names[:-1], subject):
            raise AlreadyExists(f"there is a message on {subject} already")
        async with self._asking():
            try:
                await self._js.publish(subject, data, headers=_FIRST if first else None)
            except js_errors.APIError as error:
                if error.err_code != _NOT_THE_LAST:
                    raise
                raise AlreadyExists(f"there is a message on {subject} already") from None

    async def read(self, subject: str) -> list[tuple[str, bytes]]:
        """Subject and data of all that is kept on ``subject`` (wildcards allowed), oldest first."""
        return await self._read(await self._names() or [self._kept.name], subject)

    async def forget(self, subject: str) -> bool:
        """Drops all that is kept on ``subject`` (wildcards allowed); whether that is all gone.

        What retired streams hold of it may have to stay, because nothing can be written to them.
        """
        *retired, current = await self._names() or [self._kept.name]
        async with self._asking():
            await self._js.purge_stream(current, subject=subject)
        return not retired or not await self._read(retired, subject)

    async def _read(self, names: list[str], subject: str) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for name in names:
            async with self._asking():
                found += await self._read_stream(name, subject)
        return found

    async def _read_stream(self, name: str, subject: str) -> list[tuple[str, bytes]]:
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE, mem_storage=True, inactive_threshold=_IDLE_S, num_replicas=1
        )
        subscription = await self._js.pull_subscribe(subject, stream=name, config=config)
        try:
            left = (await subscription.consumer_info()).num_pending or 0
            found: list[tuple[str, bytes]] = []
            while len(found) < left:
                batch = await subscription.fetch(min(_BATCH, left - len(found)), self._timeout_s)
                found += [(message.subject, message.data) for message in batch]
            return found
        finally:
            await subscription.unsubscribe()

    async def _names(self) -> list[str]:
        """The streams that keep this journal: retired ones, oldest first, and behind them the one that captures."""
        async with self._asking():
            answer = await self._js.streams_info()
        mine = re.compile(rf"{re.escape(self._kept.name)}(?:-(\d+))?")
        found = [(int(match[1] or 1), match[0]) for info in answer if (match := mine.fullmatch(info.config.name or ""))]
        return [name for _, name in sorted(found)]

    async def _try(self, name: str) -> None:
        """`Unavailable` where a write is not stored, or where nats-server refuses all of them."""
        nothing = self._kept.subject.replace("*", "$")
        async with self._asking():
            await self._js.purge_stream(name, subject=nothing)
        if self._kept.last_only:
            await self.add(nothing, b"")

    async def _try_or_replace(self, name: str) -> None:
        try:
            await self._try(name)
        except Unavailable:
            await self._try(await self._replace(name))

    async def _has_room(self) -> bool:
        name = f"outrider-scratch-{secrets.token_hex(4)}"
        try:
            await self._js.add_stream(name=name, subjects=[name], max_bytes=2 * _SCRATCH_BYTES)
            await self._js.publish(name, bytes(_SCRATCH_BYTES))
        except nats.errors.Error:
            return False
        finally:
            with suppress(nats.errors.Error):
                await self._js.delete_stream(name)
        return True

    async def _replace(self, name: str) -> str:
        """Retires the stream of that ``name``; the next one has its subjects and settings."""
        base, number = self._kept.name, int(name.removeprefix(self._kept.name).removeprefix("-") or 1)
        async with self._asking():
            info = await self._js.stream_info(name)
            retired = [f"{_RETIRED}.{base}.{number}.{int(time.time())}"]
            await self._js.update_stream(info.config.evolve(subjects=retired, max_bytes=max(info.state.bytes, 1)))
            config = self._config if _retired_at(info) else info.config
            await self._js.add_stream(config.evolve(name=f"{base}-{number + 1}"))
        _log.warning("a stream that nats-server no longer writes was replaced", stream=name)
        return f"{base}-{number + 1}"

    async def _delete_old(self, retired: list[str]) -> None:
        for name in retired:
            async with self._asking():
                at = _retired_at(await self._js.stream_info(name))
                if at and time.time() - at > self._kept.keep_s:
                    await self._js.delete_stream(name)

    @property
    def _config(self) -> api.StreamConfig:
        kept = self._kept
        return api.StreamConfig(
            name=kept.name,
            subjects=[kept.subject],
            discard=api.DiscardPolicy.OLD,
            max_age=kept.keep_s,
            max_bytes=kept.keep_bytes,
            max_msgs_per_subject=1 if kept.last_only else -1,
            duplicate_window=min(kept.keep_s, 120.0),
        )

    @property
    def _js(self) -> JetStreamContext:
        return self._bus.jetstream(self._timeout_s)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        if not self._bus.connected:
            raise Unavailable("NATS is not connected", retry_after=1.0)
        try:
            yield
        except (js_errors.NoStreamResponseError, js_errors.ServiceUnavailableError) as error:
            full = isinstance(error, js_errors.APIError) and error.err_code == _NO_ROOM
            raise Unavailable(_FULL if full else _NO_JETSTREAM, retry_after=1.0) from None
        except nats.errors.Error as error:
            raise Unavailable(f"JetStream did not answer: {error}", retry_after=1.0) from None


def _retired_at(info: api.StreamInfo) -> int:
    """When a stream was retired, in seconds since 1970; 0 for one that captures."""
    subject = (info.config.subjects or [""])[0]
    return int(subject.rpartition(".")[2]) if subject.startswith(f"{_RETIRED}.") else 0
