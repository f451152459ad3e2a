"""Frames of running and recently finished requests, for readers that the broker did not reach."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.v1 import verifier_pb2
from outrider.verifier.requests.conversion import check
from outrider.wire.frames import frames_subject

_READER = re.compile(re.escape(frames_subject("")) + "[A-Za-z0-9_-]{1,64}")


class StreamEntry(NamedTuple):
    """A request of a tenant's stream, as stored for gateways: ``data`` is a serialized `RecalledRequest`."""

    tenant: str
    stream: str
    data: bytes

    @classmethod
    def of(cls, message: verifier_pb2.SubmitRequest) -> StreamEntry:
        """The entry of a submitted request."""
        recalled = verifier_pb2.RecalledRequest(
            request_id=message.request_id,
            record=message.record,
            prompt=message.prompt,
            sampling=message.sampling,
            speculation=message.speculation,
        )
        return cls(message.tenant, message.stream_id, recalled.SerializeToString())


class Reader(NamedTuple):
    """The gateway that reads a request: its subject, and the tag by which it knows the request.

    ``only`` says that nobody else reads the request's frames.
    """

    subject: str
    tag: int
    only: bool

    @classmethod
    def of(cls, message: verifier_pb2.SubmitRequest) -> Reader | None:
        """The reader of a submitted request, if it has one; `InvalidRequest` for a subject that is not a gateway's."""
        if message.reader:
            check(_READER.fullmatch(message.reader), "reader", f"must be like {frames_subject('gateway-1')}")
        return cls(message.reader, message.tag, not message.stream_id) if message.reader else None


@dataclass(slots=True)
class _Log:
    tenant: str
    reader: Reader | None = None
    entry: StreamEntry | None = None
    recorded: bool = False
    frames: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    size: int = 0
    done_at: float | None = None
    discarded: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class FrameLog:
    """Keeps the frames and the entry of each request while it runs and for some time after its last frame.

    Args:
        keep_s: seconds for which a finished request is kept.
        keep: most finished requests.
        keep_bytes: most bytes of frames and entries of finished requests.
        hold_s: seconds for which a finished request is kept while its entry is recorded nowhere else.
    """

    def __init__(
        self, keep_s: float = 60.0, keep: int = 4096, keep_bytes: int = 256 << 20, hold_s: float = 3600.0
    ) -> None:
        self._keep_s, self._keep, self._keep_bytes, self._hold_s = keep_s, keep, keep_bytes, hold_s
        self._bytes = 0
        self._logs: dict[str, _Log] = {}
        self._done: OrderedDict[str, float] = OrderedDict()
        self._held: OrderedDict[str, float] = OrderedDict()
        self._streams: dict[tuple[str, str], dict[str, None]] = {}

    def open(self, request: str, tenant: str = "", reader: Reader | None = None) -> None:
        """Starts a log of a request of ``tenant``; it replaces a finished log of the same request."""
        self.discard(request)
        self._drop(request)
        self._logs[request] = _Log(tenant, reader)

    def add_entry(self, request: str, entry: StreamEntry) -> None:
        """Adds the entry of a request; does nothing for a request without a log."""
        self.drop_entry(request)
        log = self._logs.get(request)
        if log is None:
            return
        log.entry, log.recorded = entry, False
        self._streams.setdefault((entry.tenant, entry.stream), {})[request] = None
        self._resize(log, len(entry.data))
        if self._done.pop(request, None) is not None:
            self._finish(request, log)

    def record(self, request: str) -> None:
        """Notes that a gateway has recorded the request's entry in its ledger."""
        log = self._logs.get(request)
        if log is not None:
            log.recorded = True
            if self._held.pop(request, None) is not None:
                self._finish(request, log)

    def drop_entry(self, request: str) -> None:
        """Drops the entry of a request, if any."""
        log = self._logs.get(request)
        if log is None or log.entry is None:
            return
        entry, log.entry = log.entry, None
        self._resize(log, -len(entry.data))
        requests = self._streams[entry.tenant, entry.stream]
        del requests[request]
        if not requests:
            del self._streams[entry.tenant, entry.stream]

    def entries(self, tenant: str, stream: str) -> list[tuple[bytes, bool]]:
        """The data of each entry of a stream, and whether the request is running."""
        logs = [(request, self._logs[request]) for request in self._streams.get((tenant, stream), {})]
        return [(log.entry.data, self.running(request)) for request, log in logs if log.entry is not None]

    def running(self, request: str) -> bool:
        """Whether the request has a log that is not finished."""
        return request in self._logs and self._logs[request].done_at is None

    def append(self, request: str, frame: bytes, end: int, last: bool) -> Reader | None:
        """Adds a frame whose tokens end before index ``end``; ``last`` finishes the log. The request's reader."""
        log = self._logs[request]
        log.frames.append(frame)
        log.ends.append(end)
        log.size += len(frame)
        if last:
            log.done_at = time.monotonic()
            self._bytes += log.size
            self._finish(request, log)
        log.news.set()
        return log.reader

    def forget(self, tenant: str) -> int:
        """Drops the finished logs of a tenant; returns their number."""
        requests = [request for request, log in self._logs.items() if log.tenant == tenant and log.done_at is not None]
        for request in requests:
            self._drop(request)
        return len(requests)

    def discard(self, request: str) -> None:
        """Drops the unfinished log of a request that will get no last frame; `follow` raises `KeyError` for it."""
        if self.running(request):
            log = self._logs[request]
            self._drop(request)
            log.discarded = True
            log.news.set()

    def _finish(self, request: str, log: _Log) -> None:
        held = log.entry is not None and not log.recorded
        (self._held if held else self._done)[request] = time.monotonic()
        self._forget()

    def _forget(self) -> None:
        now = time.monotonic()
        while len(self._done) + len(self._held) > 1:
            oldest = [(next(iter(queue.items())), keep_s) for queue, keep_s in self._finished if queue]
            expired = [request for (request, since), keep_s in oldest if since < now - keep_s]
            if not expired and not self._full:
                break
            self._drop(expired[0] if expired else min(oldest, key=lambda item: item[0][1])[0][0])

    def expire(self) -> None:
        """Drops the finished requests whose time is over."""
        now = time.monotonic()
        for queue, keep_s in self._finished:
            for request in [request for request, since in queue.items() if since < now - keep_s]:
                self._drop(request)

    @property
    def _finished(self) -> list[tuple[OrderedDict[str, float], float]]:
        return [(self._done, self._keep_s), (self._held, self._hold_s)]

    def _drop(self, request: str) -> None:
        self.drop_entry(request)
        log = self._logs.pop(request, None)
        self._done.pop(request, None)
        self._held.pop(request, None)
        if log is not None and log.done_at is not None:
            self._bytes -= log.size

    def _resize(self, log: _Log, more: int) -> None:
        log.size += more
        if log.done_at is not None:
            self._bytes += more

    @property
    def _full(self) -> bool:
        return len(self._done) + len(self._held) > self._keep or self._bytes > self._keep_bytes

    def so_far(self, request: str, start: int) -> list[bytes]:
        """The frames so far that hold tokens from index ``start`` on, and the newest; `KeyError` if unknown."""
        log = self._logs[request]
        last = len(log.frames) - 1
        return [frame for place, frame in enumerate(log.frames) if log.ends[place] > start or place == last]

    async def follow(self, request: str, start: int, silence_s: float | None = None) -> AsyncIterator[bytes | None]:
        """Yields frames that hold tokens from index ``start`` on, up to the last one.

        Yields None after every ``silence_s`` seconds without a frame. `KeyError` for an unknown request, and for a
        request that is discarded meanwhile.
        """
        log, place = self._logs[request], 0
        while True:
            log.news.clear()
            while place < len(log.frames):
                last = log.done_at is not None and place == len(log.frames) - 1
                if log.ends[place] > start or last:
                    yield log.frames[place]
                place += 1
            if log.done_at is not None and place == len(log.frames):
                return
            if log.discarded:
                raise KeyError(request)
            try:
                async with asyncio.timeout(silence_s):
                    await log.news.wait()
            except TimeoutError:
                yield None
