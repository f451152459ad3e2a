"""The log of frames for readers that the broker did not reach."""

from __future__ import annotations

import asyncio

import pytest
from outrider.verifier.rpc.frame_log import FrameLog, StreamEntry


async def frames_of(log: FrameLog, request: str) -> list[bytes]:
    return [frame async for frame in log.follow(request, 0)]


async def test_finished_requests_are_forgotten_once_they_hold_too_many_bytes() -> None:
    log = FrameLog(keep_bytes=100)
    for name, size in (("a", 30), ("b", 30), ("b", 50), ("c", 50)):
        log.open(name)
        log.append(name, bytes(size), 1, last=True)
    with pytest.raises(KeyError):
        await frames_of(log, "a")
    assert await frames_of(log, "b") == [bytes(50)]
    assert await frames_of(log, "c") == [bytes(50)]


async def test_the_latest_request_is_kept_however_large() -> None:
    log = FrameLog(keep_bytes=100)
    log.open("a")
    log.append("a", bytes(300), 1, last=True)
    assert await frames_of(log, "a") == [bytes(300)]


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
    following = asyncio.create_task(frames_of(log, "a"))
    await asyncio.sleep(0)
    (log.open if replaced else log.discard)("a")
    with pytest.raises(KeyError):
        await asyncio.wait_for(following, 10)
    assert log.running("a") is replaced


def ended(log: FrameLog, request: str, entry: StreamEntry | None = None, size: int = 30) -> None:
    log.open(request)
    if entry is not None:
        log.add_entry(request, entry)
    log.append(request, bytes(size), 1, last=True)


def test_an_entry_is_found_by_its_tenant_and_stream_alone() -> None:
    log = FrameLog()
    for choice in ("a", "a-1"):
        log.open(choice)
        log.add_entry(choice, StreamEntry("t", "a", choice.encode()))
    log.append("a", b"end", 1, last=True)
    assert log.entries("t", "a") == [(b"a", False), (b"a-1", True)]
    assert log.entries("u", "a") == log.entries("t", "a-1") == []
    log.drop_entry("a")
    assert log.entries("t", "a") == [(b"a-1", True)]
    log.discard("a-1")
    assert log.entries("t", "a") == []


async def test_what_is_recorded_nowhere_else_is_kept_for_longer() -> None:
    log = FrameLog(keep_s=-1, hold_s=3600)
    for request in ("held", "told"):
        ended(log, request, StreamEntry("t", request, b"entry"))
    log.record("told")
    ended(log, "last")
    assert await frames_of(log, "held") == [bytes(30)]
    assert [len(log.entries("t", request)) for request in ("held", "told")] == [1, 0]
    with pytest.raises(KeyError):
        await frames_of(log, "told")
    log.record("held")
    ended(log, "very last")
    with pytest.raises(KeyError):
        await frames_of(log, "held")


async def test_entries_count_as_bytes_and_the_oldest_gives_way() -> None:
    log = FrameLog(keep_bytes=150)
    ended(log, "a", StreamEntry("t", "a", bytes(60)))
    ended(log, "b", StreamEntry("t", "b", bytes(20)))
    ended(log, "c")
    assert (log.entries("t", "a"), len(log.entries("t", "b"))) == ([], 1)
    assert await frames_of(log, "c") == [bytes(30)]
    log.add_entry("c", StreamEntry("t", "c", bytes(100)))
    assert (log.entries("t", "b"), len(log.entries("t", "c"))) == ([], 1)


async def test_what_is_there_so_far_is_told_without_waiting() -> None:
    log = FrameLog()
    log.open("a")
    assert log.so_far("a", 0) == []
    for end in (1, 2, 3):
        log.append("a", bytes([end]), end, last=False)
    assert log.so_far("a", 0) == [b"\1", b"\2", b"\3"]
    assert log.so_far("a", 2) == [b"\3"]
    with pytest.raises(KeyError):
        log.so_far("b", 0)


async def test_a_tenant_is_forgotten_with_its_entries_and_requests_that_run_stay() -> None:
    log = FrameLog()
    for request, tenant in (("a", "gone"), ("b", "stays"), ("running", "gone")):
        log.open(request, tenant)
        log.add_entry(request, StreamEntry(tenant, request, b"entry"))
    for request in ("a", "b"):
        log.append(request, b"frame", 1, last=True)
    assert log.forget("gone") == 1
    assert log.entries("gone", "a") == []
    assert log.running("running")
    assert await frames_of(log, "b") == [b"frame"]
    with pytest.raises(KeyError):
        await frames_of(log, "a")


async def test_the_last_request_goes_as_well_when_its_time_is_over() -> None:
    log = FrameLog(keep_s=0.0)
    ended(log, "a")
    assert await frames_of(log, "a") == [bytes(30)]
    log.expire()
    with pytest.raises(KeyError):
        await frames_of(log, "a")
