"""Answers kept for requests that ask for the same again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
from outrider.gateway.routing.job import Job
from outrider.gateway.stream.answer import OnPlaced, ignore_placement
from outrider.mesh.errors import OutriderError
from outrider.mesh.registry import Member
from outrider.wire.frames import Finish, Frame, encode_frame

_ENTRY_BYTES = 256


class _Entry(msgspec.Struct, frozen=True):
    """The frames of an answer to a ``tenant``, its size in bytes, and when it expires."""

    frames: list[Frame]
    size: int
    until: float
    tenant: str


class AnswerCache:
    """Keeps at most ``most_bytes`` of answers, each for ``keep_s`` seconds; the least recently used are dropped first.

    Attributes:
        size: Bytes of all answers.
    """

    def __init__(self, most_bytes: int, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._keep_s, self._clock = most_bytes, keep_s, clock
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.size = 0

    def get(self, key: bytes) -> list[Frame] | None:
        """The frames of the answer kept under ``key``, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._clock() >= entry.until:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.frames

    def put(self, key: bytes, frames: Sequence[Frame], tenant: str = "") -> None:
        """Keeps a complete answer to ``tenant``.

        Ignores one that failed, was cancelled, or is larger than the whole cache.
        """
        if not frames or frames[-1].finish not in (Finish.STOP, Finish.LENGTH):
            return
        kept = [*frames[:-1], _as_cached(frames[-1])]
        size = sum(len(encode_frame(frame)) for frame in kept) + _ENTRY_BYTES
        self._drop(key)
        if size > self._most:
            return
        self._entries[key] = _Entry(kept, size, self._clock() + self._keep_s, tenant)
        self.size += size
        while self.size > self._most:
            self._drop(next(iter(self._entries)))

    def forget(self, tenant: str) -> int:
        """Drops a tenant's answers; returns their number."""
        keys = [key for key, entry in self._entries.items() if entry.tenant == tenant]
        for key in keys:
            self._drop(key)
        return len(keys)

    def expire(self) -> None:
        """Drops the answers whose time is over."""
        now = self._clock()
        for key in [key for key, entry in self._entries.items() if now >= entry.until]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self.size -= entry.size


class CachedStream:
    """An `AnswerStream` that reads a cached answer. It has no verifier."""

    failed: OutriderError | None = None
    lease: tuple[str, Member] | None = None
    verifier = holder = ""
    expired_unstarted = False

    def __init__(self, job: Job, frames: Sequence[Frame]) -> None:
        self.job, self._frames = job, list(frames)
        self.on_placed: OnPlaced = ignore_placement
        self.spent, self.finished, self.placed = 0, False, False

    async def open(self) -> None:
        """Counts as placed at once."""
        self.placed = True
        self.on_placed()

    async def frames(self) -> AsyncGenerator[list[Frame], None]:
        """All frames together."""
        if not self.finished:
            last = self._frames[-1]
            self.spent, self.finished = max(0, last.first_index + len(last.tokens)), True
            yield self._frames

    async def close(self, *, cancel: bool = True) -> None:
        """Releases nothing but the flight."""
        self.on_placed = ignore_placement

    def follow(self, reason: str) -> None:
        """There is no verifier to follow."""


def repeatable(member: Member | None) -> bool:
    """Whether the verifier gives the same answer to the same request, bit for bit."""
    return member is not None and member.status.get("determinism") == "strict" and not member.status.get("lossy")


def _as_cached(last: Frame) -> Frame:
    """The last frame of an answer, with the usage of an answer that needs no computation."""
    assert last.usage is not None
    usage = last.usage
    usage = msgspec.structs.replace(
        usage, cached_tokens=usage.prompt_tokens, steps=0, accepted_tokens=0, rejected_tokens=0, predicted=None
    )
    return msgspec.structs.replace(last, usage=usage)
