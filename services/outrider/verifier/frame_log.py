"""Frames of running and lately finished requests, for readers that the broker did not reach."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Log:
    frames: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    size: int = 0
    done_at: float | None = None
    gone: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)


class FrameLog:
    """Keeps every frame of a request until some time after its last one.

    Args:
        keep_s: seconds that a finished request's frames are kept.
        keep: most finished requests that are kept.
        keep_bytes: most bytes of their frames.
    """

    def __init__(self, keep_s: float = 60.0, keep: int = 4096, keep_bytes: int = 256 << 20) -> None:
        self._keep_s, self._keep, self._keep_bytes = keep_s, keep, keep_bytes
        self._bytes = 0
        self._logs: dict[str, _Log] = {}
        self._done: OrderedDict[str, float] = OrderedDict()

    def open(self, request: str) -> None:
        """Starts a log, in place of a finished one of the same name."""
        if self._done.pop(request, None) is not None:
            self._bytes -= self._logs[request].size
        self.discard(request)
        self._logs[request] = _Log()

    def running(self, request: str) -> bool:
        """Whether the request has a log that is not finished."""
        return request in self._logs and self._logs[request].done_at is None

    def append(self, request: str, frame: bytes, end: int, last: bool) -> None:
        """Adds a frame that ends before token ``end``."""
        log = self._logs[request]
        log.frames.append(frame)
        log.ends.append(end)
        log.size += len(frame)
        if last:
            log.done_at = self._done[request] = time.monotonic()
            self._bytes += log.size
            self._forget()
        log.news.set()

    def discard(self, request: str) -> None:
        """Drops a log that has no last frame and will not get one, if there is such a log; its followers are told."""
        if self.running(request):
            log = self._logs.pop(request)
            log.gone = True
            log.news.set()

    def _forget(self) -> None:
        horizon = time.monotonic() - self._keep_s
        while len(self._done) > 1 and (self._full or next(iter(self._done.values())) < horizon):
            request, _ = self._done.popitem(last=False)
            self._bytes -= self._logs.pop(request).size

    @property
    def _full(self) -> bool:
        return len(self._done) > self._keep or self._bytes > self._keep_bytes

    async def follow(self, request: str, start: int, silence_s: float | None = None) -> AsyncIterator[bytes | None]:
        """Frames that hold tokens from index ``start`` on, and the last one.

        `KeyError` for an unknown request, and for one that is discarded meanwhile.
        None after every ``silence_s`` seconds in which no frame came.
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
            if log.gone:
                raise KeyError(request)
            try:
                async with asyncio.timeout(silence_s):
                    await log.news.wait()
            except TimeoutError:
                yield None
