"""Journals on a broker whose disk is full, and has room again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from outrider.mesh.bus import Bus, Journal, JournalConfig
from outrider.mesh.errors import AlreadyExists, Unavailable

from tests.small_store import SmallStore, small_store

CONFIG = JournalConfig("outrider-requests", "ask.*.*.*", 3600, 1 << 30, last_only=True)


@pytest.fixture(params=["limited", "full"])
async def small(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SmallStore]:
    with small_store(request.param, tmp_path) as new_bus:
        await new_bus.prepare()
        yield new_bus


@asynccontextmanager
async def joined(small: SmallStore) -> AsyncIterator[Bus]:
    new_bus = Bus()
    await new_bus.connect(small.broker.url, "test", wait_s=10)
    try:
        yield new_bus
    finally:
        await new_bus.close()


@pytest.fixture
async def bus(small: SmallStore) -> AsyncIterator[Bus]:
    async with joined(small) as new_bus:
        yield new_bus


async def _exhausted(journal: Journal) -> None:
    """Writes until the broker accepts no more."""
    with suppress(Unavailable):
        while True:
            await journal.add("ask.t.filling.0-1", bytes(4096))


async def test_a_journal_takes_up_again_by_itself_when_there_is_room(bus: Bus, small: SmallStore) -> None:
    one, other = (Journal(bus, CONFIG, timeout_s=1) for _ in range(2))
    await one.add("ask.t.before.0-1", b"kept")
    await small.fill()
    await _exhausted(one)
    for journal in (one, other):
        with pytest.raises(Unavailable):
            await journal.tend()
    assert await other.read("ask.t.before.*") == [("ask.t.before.0-1", b"kept")]
    await small.free()
    await one.tend()
    await other.tend()
    await one.add("ask.t.after.0-1", b"new")
    for journal in (one, other):
        assert await journal.read("ask.t.after.*") == [("ask.t.after.0-1", b"new")]
        assert await journal.read("ask.t.before.*") == [("ask.t.before.0-1", b"kept")]
        with pytest.raises(AlreadyExists):
            await journal.add("ask.t.before.0-1", b"", first=True)


async def test_what_was_retired_goes_when_all_of_it_is_too_old(bus: Bus, small: SmallStore) -> None:
    journal = Journal(bus, CONFIG, timeout_s=1)
    await journal.add("ask.t.before.0-1", b"old")
    await small.fill()
    await _exhausted(journal)
    await small.free()
    await journal.tend()
    brief = Journal(bus, JournalConfig("outrider-requests", "ask.*.*.*", -1, 1 << 30, last_only=True), timeout_s=1)
    await brief.tend()
    names = [info.config.name for info in await bus.jetstream(1).streams_info()]
    replaced = "outrider-requests-2" in names
    assert "outrider-tokens" in names
    assert ("outrider-requests" in names) is not replaced
    assert len(await journal.read("ask.t.before.*")) == (0 if replaced else 1)


async def test_it_is_told_when_something_could_not_be_dropped(bus: Bus, small: SmallStore) -> None:
    journal = Journal(bus, CONFIG, timeout_s=1)
    await journal.add("ask.t.before.0-1", b"old")
    await small.fill()
    await _exhausted(journal)
    await small.free()
    await journal.tend()
    gone = await journal.forget("ask.t.before.*")
    assert gone == (await journal.read("ask.t.before.*") == [])
    assert await journal.forget("ask.t.after.*")


async def test_of_many_that_find_room_one_creates_the_next_stream_and_all_use_it(bus: Bus, small: SmallStore) -> None:
    await bus.jetstream(10).update_stream(name=CONFIG.name, subjects=["ask.>"], max_msgs_per_subject=1)
    await small.fill()
    await _exhausted(Journal(bus, CONFIG))
    await small.free()
    async with AsyncExitStack() as stack:
        journals = [Journal(await stack.enter_async_context(joined(small)), CONFIG, timeout_s=10) for _ in range(12)]

        async def tend(place: int) -> None:
            await asyncio.sleep(place * 0.002)  # so that some find a stream that another one is replacing
            await journals[place].tend()

        await asyncio.gather(*map(tend, range(len(journals))))
        for number, journal in enumerate(journals):
            await journal.add(f"ask.t.{number}.0-1", b"new")
            assert await journal.read(f"ask.t.{number}.*") == [(f"ask.t.{number}.0-1", b"new")]


@pytest.mark.parametrize("retired", ["1.1048576", "1"], ids=["with its size", "by an older version"])
@pytest.mark.parametrize("begin", [Journal.open, Journal.tend])
@pytest.mark.parametrize("last_only", [True, False])
async def test_a_stream_that_was_retired_without_a_next_one_gets_one_with_its_settings(
    retired: str, begin: Callable[[Journal], Awaitable[None]], last_only: bool, tmp_path: Path
) -> None:
    with small_store("limited", tmp_path) as small:
        async with joined(small) as bus:
            config = JournalConfig("outrider-requests", "ask.*.*.*", 3600, 1 << 20, last_only=last_only)
            journal, js = Journal(bus, config, timeout_s=10), bus.jetstream(10)
            await journal.open()
            await journal.add("ask.t.before.0-1", b"kept")
            info = await js.stream_info(config.name)
            subjects = [f"outrider.retired.{config.name}.{retired}.{int(time.time())}"]
            await js.update_stream(info.config.evolve(subjects=subjects, max_age=7200, max_bytes=100))
            with pytest.raises(Unavailable):
                await journal.add("ask.t.lost.0-1", b"")
            await begin(journal)
            await journal.add("ask.t.after.0-1", b"new")
            assert await journal.read("ask.t.*.*") == [("ask.t.before.0-1", b"kept"), ("ask.t.after.0-1", b"new")]
            made = (await js.stream_info(f"{config.name}-2")).config
            assert (made.subjects, made.max_age, made.max_bytes) == ([config.subject], 7200, 1 << 20)


async def test_journals_share_what_room_there_is_where_it_is_less_than_they_are_set_to(tmp_path: Path) -> None:
    with small_store("limited", tmp_path) as store:
        bus = Bus()
        await bus.connect(store.broker.url, "test", wait_s=10)
        for name, subject in (("first", "one.*"), ("second", "two.*")):
            journal = Journal(bus, JournalConfig(name, subject, 3600, 512 << 20), timeout_s=2)
            await journal.open()
            await journal.open()
            await journal.add(subject.replace("*", "a"), b"kept")
            assert await journal.read(subject) == [(subject.replace("*", "a"), b"kept")]
        sizes = [info.config.max_bytes or 0 for info in await bus.jetstream(2).streams_info()]
        assert sum(sizes) <= 2 << 20
        await bus.close()
