"""Background tasks and work within a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from outrider.mesh.tasks import Tasks, within


async def lose_cancellations(count: int) -> None:
    for _ in range(count):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    await asyncio.sleep(3600)


async def test_work_within_its_time_gives_its_result() -> None:
    assert await within(5, asyncio.sleep(0, "result")) == "result"


async def test_work_that_fails_within_its_time_raises_its_error() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        await within(5, fail())


async def test_work_that_loses_cancellations_ends_at_its_time() -> None:
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await within(0.05, lose_cancellations(1))


async def test_a_caller_that_is_cancelled_ends_the_work() -> None:
    started: list[asyncio.Task[None]] = []

    async def work() -> None:
        started.append(asyncio.current_task())  # type: ignore[arg-type]
        await asyncio.sleep(3600)

    caller = asyncio.create_task(within(3600, work()))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert started[0].cancelled()


async def test_background_tasks_end_even_where_they_lose_cancellations() -> None:
    tasks = Tasks()
    task = tasks.spawn(lose_cancellations(1), "stubborn")
    await asyncio.sleep(0.01)
    await tasks.cancel()
    assert task.cancelled()
