"""The key-value store over a real nats-server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from secrets import token_hex

import pytest
from outrider.mesh.bus import Bucket, Bus, Entry
from outrider.mesh.errors import AlreadyExists, Unavailable

from tests.broker import Broker
from tests.waiting import eventually


@pytest.fixture
async def bucket(jetstream: str) -> AsyncIterator[Bucket]:
    bus = Bus()
    await bus.connect(jetstream, "test", wait_s=10)
    new_bucket = Bucket(bus, f"test-{token_hex(4)}")
    await new_bucket.open()
    yield new_bucket
    await bus.close()


async def test_a_value_is_read_as_it_was_written_last(bucket: Bucket) -> None:
    assert await bucket.get("a.b") is None
    first = await bucket.put("a.b", b"one")
    second = await bucket.put("a.b", b"two")
    assert await bucket.get("a.b") == Entry(b"two", second)
    assert second > first


async def test_a_swap_is_refused_once_another_has_written(bucket: Bucket) -> None:
    revision = await bucket.swap("key", b"one", 0)
    with pytest.raises(AlreadyExists):
        await bucket.swap("key", b"other", 0)
    newer = await bucket.swap("key", b"two", revision)
    with pytest.raises(AlreadyExists):
        await bucket.swap("key", b"late", revision)
    assert await bucket.get("key") == Entry(b"two", newer)


async def test_all_keys_are_listed_in_order(bucket: Bucket) -> None:
    assert await bucket.keys() == []
    for key in ("b", "a.2", "a.1"):
        await bucket.put(key, b"")
    assert await bucket.keys() == ["a.1", "a.2", "b"]


async def test_a_value_that_is_forgotten_is_listed_no_more_and_every_write_shows_in_the_state(bucket: Bucket) -> None:
    states = [await bucket.state()]
    for write in (bucket.put("a.b", b"1"), bucket.put("a.c", b"2"), bucket.put("a.b", b"3"), bucket.forget("a.b")):
        await write
        states.append(await bucket.state())
    assert len(set(states)) == 5
    assert (await bucket.get("a.b"), await bucket.keys()) == (None, ["a.c"])
    await bucket.forget("a.b")


async def test_writers_at_once_do_not_pass_a_limit_together(bucket: Bucket) -> None:
    await bucket.put("other.a", b"")
    written = await asyncio.gather(*(bucket.put_below_limit(f"t.{n}", b"x", "t.", 4) for n in range(8)))
    assert sum(revision is not None for revision in written) == 4
    keys_kept = [key for key in await bucket.keys() if key.startswith("t.")]
    assert len(keys_kept) == 4
    revision = await bucket.put_below_limit(keys_kept[0], b"again", "t.", 4)
    assert await bucket.get(keys_kept[0]) == (b"again", revision)
    await bucket.forget(keys_kept[0])
    assert await bucket.put_below_limit("t.new", b"x", "t.", 4) is not None


async def test_a_bucket_that_nobody_made_has_no_state(jetstream: str) -> None:
    bus = Bus()
    await bus.connect(jetstream, "test", wait_s=10)
    assert await Bucket(bus, "test-nowhere").state() == (0, 0)
    await bus.close()


async def test_a_broker_without_jetstream_is_told_by_name(bus: Bus) -> None:
    with pytest.raises(Unavailable, match="--jetstream"):
        await Bucket(bus, "test").open()


async def test_what_was_written_is_there_when_the_broker_comes_back(tmp_path: Path) -> None:
    broker, bus = Broker(), Bus()
    broker.start("--jetstream", "--store_dir", str(tmp_path))
    await bus.connect(broker.url, "test", wait_s=10)
    bucket = Bucket(bus, "test")
    await bucket.open()
    await bucket.put("key", b"kept")
    broker.kill()
    await eventually(lambda: not bus.connected)
    with pytest.raises(Unavailable):
        await bucket.get("key")
    broker.start("--jetstream", "--store_dir", str(tmp_path))
    await eventually(lambda: bus.connected)
    entry = await bucket.get("key")
    assert entry is not None
    assert entry.value == b"kept"
    await bus.close()
    broker.kill()
