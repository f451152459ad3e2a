"""Values that outlive their writers: a bucket of JetStream's key-value store."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import nats.js.errors as js_errors
from nats.js.api import DiscardPolicy, Header, StreamConfig
from nats.js.kv import KeyValue
from outrider.mesh.bus.stored.jetstream import add_stream, mapping_errors, raise_replicas
from outrider.mesh.bus.stored.wipe import wipe
from outrider.mesh.errors import AlreadyExists, Unavailable

if TYPE_CHECKING:
    from outrider.mesh.bus.client import Bus

_WRONG_LAST_SEQUENCE = 10071  # JetStream's code of an error
_ATTEMPTS = 64
_DUPLICATES_S = 120.0


class Entry(NamedTuple):
    """A value and its revision, which every write raises."""

    value: bytes
    revision: int


class Bucket:
    """Keys with values in JetStream, read from the stream's leader and written by compare-and-swap.

    Every call raises `Unavailable` when the broker does not answer within ``timeout_s``; a write may then have been
    made or not, and may still be made until another write of its key succeeds.
    """

    def __init__(self, bus: Bus, name: str, timeout_s: float = 2.0) -> None:
        self._bus, self._name, self._timeout_s = bus, name, timeout_s

    async def open(self, keep_s: float | None = None) -> None:
        """Creates the bucket unless it exists; values are dropped ``keep_s`` seconds after they were written.

        A bucket that an operator made is used as it is, with `raise_replicas`.
        """
        async with mapping_errors(self._bus):
            try:
                await self._bus.jetstream(self._timeout_s).key_value(self._name)
            except js_errors.BucketNotFoundError:
                return await add_stream(self._bus, self._config(keep_s), self._timeout_s)
            await raise_replicas(self._bus, f"KV_{self._name}", self._timeout_s)

    async def get(self, key: str) -> Entry | None:
        """The value of ``key``, if it has one."""
        async with mapping_errors(self._bus):
            try:
                entry = await self._store().get(key)
            except js_errors.KeyNotFoundError:
                return None
        return Entry(entry.value or b"", entry.revision or 0)

    async def put(self, key: str, value: bytes) -> int:
        """Writes, whatever the value was; returns the revision."""
        async with mapping_errors(self._bus):
            return await self._store().put(key, value)

    async def swap(self, key: str, value: bytes, revision: int) -> int:
        """Writes if ``key`` still has ``revision`` (0: no value); returns the new one. Else `AlreadyExists`."""
        async with mapping_errors(self._bus):
            try:
                return await self._store().update(key, value, last=revision)
            except js_errors.KeyWrongLastSequenceError:
                raise AlreadyExists(f"{key} has been written by another") from None

    async def put_below_limit(self, key: str, value: bytes, prefix: str, most: int) -> int | None:
        """Writes unless ``most`` other keys begin with ``prefix``; returns the revision, or None if it did not write.

        Keys are counted again after any other write to the bucket, so that two writers never exceed the limit together.
        `Unavailable` where such writes do not end.
        """
        for _ in range(_ATTEMPTS):
            async with mapping_errors(self._bus):
                last, keys = await self._keys()
                if sum(each.startswith(prefix) for each in keys if each != key) >= most:
                    return None
                if (revision := await self._put_after(key, value, last)) is not None:
                    return revision
        raise Unavailable(f"{self._name} is being written by too many others", retry_after=1.0)

    async def forget(self, key: str) -> None:
        """Drops ``key`` and its value, if it has one."""
        async with mapping_errors(self._bus):
            js = self._bus.jetstream(self._timeout_s)
            await js.purge_stream(f"KV_{self._name}", subject=f"$KV.{self._name}.{key}")

    async def wipe(self, keys: str, before: float = inf) -> int:
        """Overwrites and deletes values of ``keys`` (wildcards allowed) as `wipe`; returns their number."""
        async with mapping_errors(self._bus):
            js = self._bus.jetstream(self._timeout_s)
            return await wipe(js, f"KV_{self._name}", f"$KV.{self._name}.{keys}", before, self._timeout_s)

    async def state(self) -> tuple[int, int]:
        """The last revision and the number of values, a pair that every write changes; zeros without a bucket."""
        async with mapping_errors(self._bus):
            try:
                state = (await self._bus.jetstream(self._timeout_s).stream_info(f"KV_{self._name}")).state
            except js_errors.NotFoundError:
                return 0, 0
        return state.last_seq, state.messages

    async def keys(self) -> list[str]:
        """All keys that have a value, in order; none without a bucket."""
        async with mapping_errors(self._bus):
            try:
                return sorted((await self._keys())[1])
            except js_errors.NotFoundError:
                return []

    async def _keys(self) -> tuple[int, list[str]]:
        """The last revision of the bucket, and its keys at that time."""
        prefix = f"$KV.{self._name}."
        info = await self._bus.jetstream(self._timeout_s).stream_info(f"KV_{self._name}", f"{prefix}>")
        return info.state.last_seq, [subject.removeprefix(prefix) for subject in info.state.subjects or {}]

    async def _put_after(self, key: str, value: bytes, last: int) -> int | None:
        """Writes if the bucket's last revision is still ``last``; returns the new one, else None."""
        headers = {Header.EXPECTED_LAST_SEQUENCE.value: str(last)}
        try:
            js = self._bus.jetstream(self._timeout_s)
            return (await js.publish(f"$KV.{self._name}.{key}", value, headers=headers)).seq
        except js_errors.BadRequestError as error:
            if error.err_code == _WRONG_LAST_SEQUENCE:
                return None
            raise

    def _config(self, keep_s: float | None) -> StreamConfig:
        """The stream of a bucket as `create_key_value` makes it, but messages may be overwritten: `wipe` does so."""
        return StreamConfig(
            name=f"KV_{self._name}",
            subjects=[f"$KV.{self._name}.>"],
            max_msgs_per_subject=1,
            max_age=keep_s,
            discard=DiscardPolicy.NEW,
            allow_rollup_hdrs=True,
            duplicate_window=min(keep_s or _DUPLICATES_S, _DUPLICATES_S),
        )

    def _store(self) -> KeyValue:
        """The bucket over the current connection. Reads are not direct: a replica that lags may answer direct reads."""
        js = self._bus.jetstream(self._timeout_s)
        return KeyValue(self._name, f"KV_{self._name}", f"$KV.{self._name}.", js, direct=False)
