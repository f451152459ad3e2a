"""Calls and their outcomes as they travel on a lane, many in one message."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import msgspec
from outrider.mesh.errors import OutriderError, kind_name, named

FAREWELL = b"\x90"
"""The last message of a service that ends its lanes: no outcomes."""
PING = b""
"""Is answered by the same."""
_BATCH_BYTES = 1 << 20


class Failure(msgspec.Struct, array_like=True, frozen=True):
    """An `OutriderError`; ``retry_after`` is in seconds."""

    kind: str
    message: str
    param: str | None
    retry_after: float | None

    @classmethod
    def of(cls, error: OutriderError) -> Failure:
        """What is told of ``error``."""
        return cls(kind_name(error), error.message, error.param, error.retry_after)

    def error(self) -> OutriderError:
        """The error again."""
        return named(self.kind)(self.message, param=self.param, retry_after=self.retry_after)


class Call(msgspec.Struct, array_like=True, frozen=True):
    """A unary call of ``method``, `/package.Service/Method`; without one, call ``number`` is given up."""

    number: int
    method: str = ""
    data: bytes = b""
    headers: dict[str, str] | None = None


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """What became of call ``number``."""

    number: int
    data: bytes
    failure: Failure | None = None


encode = msgspec.msgpack.Encoder().encode
decode_calls = msgspec.msgpack.Decoder(list[Call]).decode
decode_outcomes = msgspec.msgpack.Decoder(list[Outcome]).decode

T = TypeVar("T", Call, Outcome)


class Batches(Generic[T]):
    """What waits to be sent."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: T) -> None:
        """Appends."""
        self._waiting.append(item)

    def take(self) -> bytes:
        """The next message: all that waits, or the first mebibyte of it."""
        items, size = [self._waiting.popleft()], 0
        while self._waiting and (size := size + len(items[-1].data)) < _BATCH_BYTES:
            items.append(self._waiting.popleft())
        return encode(items)
