"""Rights suffice for all that a process does with stored messages and values."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh import erasures
from outrider.mesh.bus import Bucket, Bus, Journal, JournalConfig, find_login
from outrider.mesh.errors import Unavailable
from outrider.wire import prompts, tenants
from outrider.wire.frames import token_subject
from outrider.wire.subjects import BILLS_BUCKET, LIMITS_BUCKET, record_subject

from tests.users import guarded_broker

Join = Callable[[str], Awaitable[Bus]]


@pytest.fixture
async def join(tmp_path: Path) -> AsyncIterator[Join]:
    users = BusDirectory(tmp_path / "bus")
    broker = guarded_broker(users, "--jetstream", "--store_dir", str(tmp_path / "store"))
    broker.start()
    async with AsyncExitStack() as stack:

        async def start(user: str) -> Bus:
            bus = Bus()
            await bus.connect(broker.url, user, 10, find_login(str(users.path), user))
            stack.push_async_callback(bus.close)
            return bus

        yield start
    broker.kill()


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("gateway", LIMITS_BUCKET),
        ("gateway", BILLS_BUCKET),
        ("gateway", tenants.BUCKET),
        ("gateway", prompts.BUCKET),
        ("admin", prompts.BUCKET),
        ("admin", tenants.BUCKET),
        ("admin", erasures.BUCKET),
    ],
)
async def test_a_writer_of_a_bucket_does_all_that_a_bucket_offers(join: Join, user: str, name: str) -> None:
    bucket = Bucket(await join(user), name, timeout_s=10)
    await bucket.open(60)
    await bucket.swap("a", b"2", await bucket.put("a", b"1"))
    assert await bucket.put_below_limit("b", b"3", "b", 2)
    await bucket.put("c.1", b"4")
    assert await bucket.wipe("c.>") == 1
    await bucket.forget("a")
    assert await bucket.keys() == ["b"]
    assert (await bucket.get("b")) is not None
    assert (await bucket.state())[1] == 1


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        ("verifier", prompts.BUCKET),
        *((kind, erasures.BUCKET) for kind in ("gateway", "verifier", "proposer", "tokenizer", "kvcache")),
    ],
)
async def test_a_reader_of_a_bucket_reads_and_does_not_write(join: Join, reader: str, name: str) -> None:
    written = Bucket(await join("admin"), name)
    await written.open()
    await written.put("a", b"1")
    bus = await join(reader)
    bucket = Bucket(bus, name, timeout_s=10)
    entry = await bucket.get("a")
    assert entry is not None
    assert (await bucket.keys(), entry.value) == (["a"], b"1")
    assert (await bucket.state())[1] == 1
    with pytest.raises(Unavailable):  # the broker says nothing to a write that it forbids
        await Bucket(bus, name, timeout_s=0.1).put("a", b"2")
    assert await bucket.get("a") == entry


@pytest.mark.parametrize(
    ("name", "subject", "last_only"),
    [("outrider-requests", record_subject("*", "*", "*"), True), ("outrider-tokens", token_subject("*", "*"), False)],
)
async def test_a_gateway_keeps_its_journals(join: Join, name: str, subject: str, last_only: bool) -> None:
    config = JournalConfig(name, subject, 3600, 1 << 20, last_only)
    journal, one = Journal(await join("gateway"), config, timeout_s=10), subject.replace("*", "a")
    await journal.open()
    await journal.add(one, b"1", first=True)
    await journal.tend()
    assert await journal.read(one) == [(one, b"1")]
    assert await journal.wipe(one, 1.0) == 0
    assert await journal.wipe(one, time.time() + 60) == 1
    assert await journal.forget(one)
