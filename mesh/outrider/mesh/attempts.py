"""Repeats attempts while the mesh changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outrider.mesh.errors import Cancelled, DeadlineExceeded, OutriderError, Overloaded, Unavailable

T = TypeVar("T")

TRANSIENT: tuple[type[OutriderError], ...] = (Unavailable, DeadlineExceeded, Cancelled)
"""Failures of a service, not of the request: another service, or a later attempt, may succeed."""
BUSY: tuple[type[OutriderError], ...] = (*TRANSIENT, Overloaded)

_PAUSE_S = 0.1


async def persist(attempt: Callable[[], Awaitable[T]], seconds: float, transient: tuple[type[OutriderError], ...]) -> T:
    """The first result of ``attempt`` within ``seconds``.

    Raises the last ``transient`` failure after that time, and other failures at once.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except transient:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_PAUSE_S)
