"""Waits for conditions that no event signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Returns when ``condition()`` is true; `TimeoutError` after ``seconds``."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)
