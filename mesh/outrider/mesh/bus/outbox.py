"""Messages on their way out, kept while the broker is away."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from outrider.mesh.telemetry import counter

_dropped = counter("bus_dropped_messages", "Messages dropped because too many waited for the broker.")


class Outgoing(NamedTuple):
    """One message to publish."""

    subject: str
    data: bytes
    headers: dict[str, str] | None


class Outbox:
    """Queue of at most ``limit`` bytes of payload that drops its oldest messages to take new ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[Outgoing] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, message: Outgoing) -> None:
        """Appends ``message`` and drops the oldest messages that no longer fit."""
        self._queue.append(message)
        self._size += len(message.data)
        while self._size > self._limit and len(self._queue) > 1:
            self._size -= len(self._queue.popleft().data)
            _dropped.inc()

    def take(self) -> Outgoing:
        """Removes and returns the oldest message; `IndexError` when there is none."""
        message = self._queue.popleft()
        self._size -= len(message.data)
        return message

    def put_back(self, message: Outgoing) -> None:
        """Undoes a `take`."""
        self._queue.appendleft(message)
        self._size += len(message.data)
