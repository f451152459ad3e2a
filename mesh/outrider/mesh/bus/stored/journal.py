"""Messages that can be read again: a stream of JetStream, bounded by age and size."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import nats.errors
import nats.js.errors as js_errors
from nats.js import JetStreamContext, api
from outrider.mesh.bus.rights import SCRATCH
from outrider.mesh.bus.stored.jetstream import Refused, add_stream, mapping_errors, raise_replicas
from outrider.mesh.bus.stored.wipe import wipe
from outrider.mesh.errors import AlreadyExists, Unavailable
from outrider.mesh.telemetry import get_logger

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_BATCH = 256
_IDLE_S = 30.0
_IN_USE = (10058, 10065)
"""JetStream's codes for a name of a stream, and for subjects, that another stream has."""
_NOT_THE_LAST = 10071
_NO_STORAGE = (10023, 10047)
_LEAST_BYTES = 1 << 20
"""Size of a stream below which none is created."""
_FIRST = {"Nats-Expected-Last-Subject-Sequence": "0"}
_SCRATCH_BYTES = 256 << 10
"""Free bytes that JetStream must have before a new stream replaces another."""

_RETIRED = "outrider.retired"

_log = get_logger("journal")


class JournalConfig(msgspec.Struct, frozen=True):
    """The messages of a journal: those on ``subject`` (with wildcards). The oldest are dropped for new ones.

    ``last_only`` keeps one message of each subject. ``keep_s`` is in seconds; ``keep_bytes`` counts what NATS stores.
    """

    name: str
    subject: str
    keep_s: float
    keep_bytes: int
    last_only: bool = False


class Journal:
    """Stores all messages on some subjects; publishers over core NATS do not wait for it.

    Calls raise `Unavailable` when the broker is away, has no JetStream or does not answer within ``timeout_s``.

    After a failed write to its disk, nats-server refuses all writes to that stream until it is restarted, however much
    space there is (as of version 2.14). `tend` then creates a new stream in its place. The old one is retired: it
    captures nothing, is still read, and is deleted once all its messages are too old. Several processes may do so at
    once, and one may end in the middle: whoever finds all streams retired creates the next one.
    """

    def __init__(self, bus: Bus, config: JournalConfig, timeout_s: float = 2.0) -> None:
        self._bus, self._config, self._timeout_s = bus, config, timeout_s

    async def open(self) -> bool:
        """Creates the stream unless it exists; one that an operator made is used as it is, with `raise_replicas`.

        Whether it existed. Where the broker has no room for ``keep_bytes``, the stream keeps half of what there is.
        """
        streams = await self._streams()
        async with mapping_errors(self._bus):
            if not streams:
                await _created(self._create())
            elif _retired_at(streams[-1]):
                await self._create_next(streams[-1])
            else:
                await raise_replicas(self._bus, _name(streams[-1]), self._timeout_s)
        return bool(streams)

    async def _create(self) -> None:
        """Creates the stream. Raises errors of nats-py, and `Unavailable` as `add_stream`."""
        config = self._stream_config
        while True:
            try:
                await add_stream(self._bus, config, self._timeout_s)
                break
            except js_errors.APIError as error:
                if error.err_code not in _NO_STORAGE or (config.max_bytes or 0) <= _LEAST_BYTES:
                    raise
            config = config.evolve(max_bytes=(config.max_bytes or 0) // 2)
        if config.max_bytes != self._config.keep_bytes:
            config = config.evolve(max_bytes=(config.max_bytes or 0) // 2)
            await self._js.update_stream(config.evolve(num_replicas=self._bus.replicas))
            _log.warning(
                "the broker has little room: a stream keeps fewer bytes than it is set to",
                stream=config.name,
                kept=config.max_bytes,
                wanted=self._config.keep_bytes,
            )

    async def tend(self) -> None:
        """Makes sure that writes are stored, in a new stream if the present one refuses them.

        `Unavailable` where there is no room, or where no server leads the stream at the moment.
        """
        streams = await self._streams()
        if not streams or _retired_at(streams[-1]):
            await self.open()
            return
        await self._delete_old(streams[:-1])
        name = _name(streams[-1])
        try:
            await self._probe_write(name)
        except Refused:
            if not await self._has_room():
                raise
            await self._probe_or_replace(name)

    async def add(self, subject: str, data: bytes, *, first: bool = False) -> None:
        """Publishes ``data`` and returns when it is stored.

        `AlreadyExists` where it must be the ``first`` message of its subject and is not.
        """
        if first and len(names := await self._names()) > 1 and await self._read(names[:-1], subject):
            raise AlreadyExists(f"there is a message on {subject} already")
        async with mapping_errors(self._bus):
            try:
                await self._js.publish(subject, data, headers=_FIRST if first else None)
            except js_errors.APIError as error:
                if error.err_code != _NOT_THE_LAST:
                    raise
                raise AlreadyExists(f"there is a message on {subject} already") from None

    async def read(self, subject: str) -> list[tuple[str, bytes]]:
        """Subject and data of all stored messages on ``subject`` (wildcards allowed), oldest first."""
        return await self._read(await self._names() or [self._config.name], subject)

    async def forget(self, subject: str) -> bool:
        """Deletes all messages on ``subject`` (wildcards allowed); returns whether none is left.

        Messages in retired streams cannot be deleted, because nothing can be written to those streams.
        """
        *retired, current = await self._names() or [self._config.name]
        async with mapping_errors(self._bus):
            await self._js.purge_stream(current, subject=subject)
        return not retired or not await self._read(retired, subject)

    async def wipe(self, subject: str, before: float) -> int:
        """Overwrites and deletes the messages of `wipe` in all streams, retired ones too; returns their number."""
        count = 0
        for name in await self._names():
            async with mapping_errors(self._bus):
                count += await wipe(self._js, name, subject, before, self._timeout_s)
        return count

    async def _read(self, names: list[str], subject: str) -> list[tuple[str, bytes]]:
        messages: list[tuple[str, bytes]] = []
        for name in names:
            async with mapping_errors(self._bus):
                messages += await self._read_stream(name, subject)
        return messages

    async def _read_stream(self, name: str, subject: str) -> list[tuple[str, bytes]]:
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE, mem_storage=True, inactive_threshold=_IDLE_S, num_replicas=1
        )
        subscription = await self._js.pull_subscribe(subject, stream=name, config=config)
        try:
            left = await self._count(name, subject)
            messages: list[tuple[str, bytes]] = []
            while len(messages) < left:
                batch = await subscription.fetch(min(_BATCH, left - len(messages)), self._timeout_s)
                messages += [(message.subject, message.data) for message in batch]
            return messages
        finally:
            await subscription.unsubscribe()

    async def _count(self, name: str, subject: str) -> int:
        """The number of messages by the server that leads the stream: a consumer's own server may lag behind."""
        return sum(((await self._js.stream_info(name, subject)).state.subjects or {}).values())

    async def _names(self) -> list[str]:
        return [_name(info) for info in await self._streams()]

    async def _streams(self) -> list[api.StreamInfo]:
        """The streams of this journal: retired ones, oldest first, and last the one that captures, if there is one."""
        async with mapping_errors(self._bus):
            answer = await self._js.streams_info()
        pattern = re.compile(rf"{re.escape(self._config.name)}(-\d+)?")
        found = [info for info in answer if pattern.fullmatch(_name(info))]
        return sorted(found, key=lambda info: (not _retired_at(info), self._number(info)))

    def _number(self, info: api.StreamInfo) -> int:
        return int(_name(info).removeprefix(self._config.name).removeprefix("-") or 1)

    async def _probe_write(self, name: str) -> None:
        """`Unavailable` where nats-server refuses all writes or does not store one."""
        probe = self._config.subject.replace("*", "$")
        async with mapping_errors(self._bus):
            await self._js.purge_stream(name, subject=probe)
        if self._config.last_only:
            await self.add(probe, b"")

    async def _probe_or_replace(self, name: str) -> None:
        try:
            await self._probe_write(name)
        except Refused:
            await self._probe_write(await self._replace(name))

    async def _has_room(self) -> bool:
        mark = secrets.token_hex(4)
        name, subject = f"outrider-scratch-{mark}", f"{SCRATCH}.{mark}"
        try:
            scratch = api.StreamConfig(name=name, subjects=[subject], max_bytes=2 * _SCRATCH_BYTES)
            await add_stream(self._bus, scratch, self._timeout_s)
            await self._js.publish(subject, bytes(_SCRATCH_BYTES))
        except (nats.errors.Error, Unavailable):
            return False
        finally:
            with suppress(nats.errors.Error):
                await self._js.delete_stream(name)
        return True

    async def _replace(self, name: str) -> str:
        """Retires the stream ``name``; returns the name of a new one with its subjects and settings."""
        async with mapping_errors(self._bus):
            info = await self._js.stream_info(name)
            if not _retired_at(info):
                stream, most = f"{self._config.name}.{self._number(info)}", info.config.max_bytes or -1
                retired = [f"{_RETIRED}.{stream}.{most}.{int(time.time())}"]
                await self._js.update_stream(info.config.evolve(subjects=retired, max_bytes=max(info.state.bytes, 1)))
            return await self._create_next(info)

    async def _create_next(self, info: api.StreamInfo) -> str:
        """The name of the stream behind ``info``; creates it unless another process has done so."""
        name, config = f"{self._config.name}-{self._number(info) + 1}", info.config
        if _retired_at(info):
            *most, _ = _retirement(info)
            config = config.evolve(subjects=[self._config.subject], max_bytes=[*most, self._config.keep_bytes][0])
        if await _created(self._js.add_stream(config.evolve(name=name))):
            _log.warning("a stream that nats-server no longer writes was replaced", stream=_name(info), by=name)
        else:
            _log.info("another process has replaced a stream that nats-server no longer writes", by=name)
        return name

    async def _delete_old(self, retired: list[api.StreamInfo]) -> None:
        for info in retired:
            if (at := _retired_at(info)) and time.time() - at > self._config.keep_s:
                async with mapping_errors(self._bus):
                    await self._js.delete_stream(_name(info))

    @property
    def _stream_config(self) -> api.StreamConfig:
        config = self._config
        return api.StreamConfig(
            name=config.name,
            subjects=[config.subject],
            discard=api.DiscardPolicy.OLD,
            max_age=config.keep_s,
            max_bytes=config.keep_bytes,
            max_msgs_per_subject=1 if config.last_only else -1,
            duplicate_window=min(config.keep_s, 120.0),
        )

    @property
    def _js(self) -> JetStreamContext:
        return self._bus.jetstream(self._timeout_s)


def _name(info: api.StreamInfo) -> str:
    return info.config.name or ""


def _retired_at(info: api.StreamInfo) -> int:
    """When a stream was retired, in seconds since 1970; 0 for one that captures."""
    return [0, *_retirement(info)][-1]


def _retirement(info: api.StreamInfo) -> list[int]:
    """Of a retired stream the bytes that it was allowed, which older versions do not tell, and when it was retired."""
    subject = (info.config.subjects or [""])[0]
    return [int(number) for number in subject.split(".")[4:]] if subject.startswith(f"{_RETIRED}.") else []


async def _created(creation: Coroutine[Any, Any, object]) -> bool:
    """Whether ``creation`` made a stream; not where another process has done so, perhaps with other settings."""
    try:
        await creation
    except js_errors.BadRequestError as error:
        if error.err_code not in _IN_USE:
            raise
        return False
    return True
