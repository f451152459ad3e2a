"""Answers that were given, for requests that ask for the very same again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
from outrider.mesh.registry import Member
from outrider.wire.frames import Finish, Frame, encode_frame

_ENTRY_BYTES = 256


class Kept(msgspec.Struct, frozen=True):
    """Frames of a whole answer, their size with what keeping them takes, and when they are too old."""

    frames: list[Frame]
    size: int
    until: float


class Cached:
    """A kept answer, as readers of `Shared` read it: there is no verifier behind it, and all of it is there."""

    done, error, lease, verifier = True, None, None, ""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames

    def enter(self) -> None:
        """Nothing begins."""

    async def opened(self) -> None:
        """Nothing is waited for."""

    async def leave(self, *, cancel: bool) -> None:
        """Nothing ends."""

    def follow(self, reason: str) -> None:
        """Nothing is followed."""

    def wake(self) -> None:
        """Nobody waits."""

    async def news(self) -> None:
        """There are none."""


class Cache:
    """At most ``most_bytes`` of answers, each for ``keep_s`` seconds; those unused longest give way."""

    def __init__(self, most_bytes: int, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._keep_s, self._clock = most_bytes, keep_s, clock
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self.size = 0

    def get(self, name: bytes) -> Cached | None:
        """The answer kept under ``name``, if there is one that is not too old."""
        kept = self._kept.get(name)
        if kept is None:
            return None
        if self._clock() >= kept.until:
            self._drop(name)
            return None
        self._kept.move_to_end(name)
        return Cached(kept.frames)

    def put(self, name: bytes, frames: Sequence[Frame]) -> None:
        """Keeps a whole answer, unless it is no good for others or larger than everything may be."""
        if not frames or frames[-1].finish not in (Finish.STOP, Finish.LENGTH):
            return
        told = [*frames[:-1], _as_cached(frames[-1])]
        size = sum(len(encode_frame(frame)) for frame in told) + _ENTRY_BYTES
        self._drop(name)
        if size > self._most:
            return
        self._kept[name] = Kept(told, size, self._clock() + self._keep_s)
        self.size += size
        while self.size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: bytes) -> None:
        if (kept := self._kept.pop(name, None)) is not None:
            self.size -= kept.size


def repeatable(member: Member | None) -> bool:
    """Whether a verifier gives the same answer to the bit whenever it is asked the same."""
    return member is not None and member.status.get("determinism") == "strict" and not member.status.get("lossy")


def _as_cached(last: Frame) -> Frame:
    """The last frame with a usage that says that nothing was computed."""
    assert last.usage is not None
    usage = last.usage
    usage = msgspec.structs.replace(
        usage, cached_tokens=usage.prompt_tokens, steps=0, accepted_tokens=0, rejected_tokens=0
    )
    return msgspec.structs.replace(last, usage=usage)
