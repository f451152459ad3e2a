"""Frames that are kept for readers whom the broker did not reach."""

from __future__ import annotations

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
