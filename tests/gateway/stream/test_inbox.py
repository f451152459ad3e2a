"""The inbox of a stream's frames, and the waits of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from outrider.gateway.stream.sources import Inbox, InboxItem, LogEnd, VerifierLost
from outrider.mesh.errors import Unavailable

_SILENCE_S = 0.01


class Clock:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def inbox(clock: Clock) -> AsyncIterator[Inbox]:
    made = Inbox(clock)
    yield made
    made.close()


async def waiting(inbox: Inbox, by: float = 1e9) -> asyncio.Task[InboxItem | None]:
    getting = asyncio.create_task(inbox.get(_SILENCE_S, by))
    await asyncio.sleep(3 * _SILENCE_S)
    assert not getting.done()
    return getting


async def test_items_come_in_order_and_those_put_first_before_them(inbox: Inbox) -> None:
    lost, first, second = VerifierLost(Unavailable("gone"), None), LogEnd(), LogEnd()
    inbox.put(lost)
    inbox.put_first([first, second])
    assert [await inbox.get(_SILENCE_S) for _ in range(3)] == [first, second, lost]
    assert inbox.get_nowait() is None


async def test_who_waits_gets_what_comes(inbox: Inbox) -> None:
    getting = await waiting(inbox)
    item = LogEnd()
    inbox.put(item)
    assert await getting is item


async def test_silence_ends_the_waiting(inbox: Inbox, clock: Clock) -> None:
    getting = await waiting(inbox)
    clock.now = _SILENCE_S
    assert await getting is None


async def test_a_deadline_ends_the_waiting_before_silence_does(inbox: Inbox, clock: Clock) -> None:
    getting = await waiting(inbox, by=0.5 * _SILENCE_S)
    clock.now = 0.5 * _SILENCE_S
    assert await getting is None


async def test_patience_begins_anew_with_each_wait(inbox: Inbox, clock: Clock) -> None:
    for _ in range(3):
        getting = await waiting(inbox)
        clock.now += _SILENCE_S
        assert await getting is None
