"""Journals on a broker whose disk is full, and has room again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
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


@pytest.fixture
async def bus(small: SmallStore) -> AsyncIterator[Bus]:
    new_bus = Bus()
    await new_bus.connect(small.broker.url, "test", wait_s=10)
    yield new_bus
    await new_bus.close()


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
