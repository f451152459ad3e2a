"""Frames that are kept for readers whom the broker did not reach."""

from __future__ import annotations

import asyncio

import pytest
from outrider.verifier.frame_log import FrameLog


async def kept(log: FrameLog, request: str) -> list[bytes]:
    return [frame async for frame in log.follow(request, 0)]


async def test_finished_requests_are_forgotten_once_they_hold_too_many_bytes() -> None:
    log = FrameLog(keep_bytes=100)
    for name, size in (("a", 30), ("b", 30), ("b", 50), ("c", 50)):
        log.open(name)
        log.append(name, bytes(size), 1, last=True)
    with pytest.raises(KeyError):
        await kept(log, "a")
    assert await kept(log, "b") == [bytes(50)]
    assert await kept(log, "c") == [bytes(50)]


async def test_the_latest_request_is_kept_however_large() -> None:
    log = FrameLog(keep_bytes=100)
    log.open("a")
    log.append("a", bytes(300), 1, last=True)
    assert await kept(log, "a") == [bytes(300)]


async def test_a_finished_log_is_read_to_its_end_though_another_takes_its_place() -> None:
    log = FrameLog()
    log.open("a")
    log.append("a", b"1", 1, last=False)
    log.append("a", b"2", 2, last=True)
    reading = log.follow("a", 0)
    assert await anext(reading) == b"1"
    log.open("a")
    assert [frame async for frame in reading] == [b"2"]


@pytest.mark.parametrize("replaced", [False, True])
async def test_followers_of_a_log_that_gets_no_end_are_told_so(replaced: bool) -> None:
    log = FrameLog()
    log.open("a")
    following = asyncio.create_task(kept(log, "a"))
    await asyncio.sleep(0)
    (log.open if replaced else log.discard)("a")
    with pytest.raises(KeyError):
        await asyncio.wait_for(following, 10)
    assert log.running("a") is replaced
