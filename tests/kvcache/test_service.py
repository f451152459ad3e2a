"""The KV cache as a process, over real gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import grpc
import msgspec
import pytest
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.erasures import BUCKET, Erasure
from outrider.mesh.errors import InvalidRequest, from_rpc
from outrider.mesh.registry import Member, Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.v1 import kvcache_pb2 as pb
from outrider.v1.kvcache_pb2_grpc import KvCacheStub
from outrider.wire.pages import page_checksum, page_key

from tests.processes import running


def key(number: int, tenant: str = "t") -> bytes:
    return page_key(b"f" * 32, tenant, number.to_bytes(32, "big"))


def page(name: bytes, size: int = 300_000) -> pb.Page:
    data = (name * (size // 32 + 1))[:size]
    return pb.Page(key=name, data=data, checksum=page_checksum(name, data), tokens=16, seconds=0.1)


@pytest.fixture(scope="module")
def cache(shared_nats: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "kvcache.log"
    settings = {"nats_url": shared_nats, "quotas": "memory=8000000", "lease_s": 60, "instance": "cache-under-test"}
    with running("kvcache", log, **settings) as process:
        process.wait_ready()
        yield "cache-under-test"


@pytest.fixture
async def member(bus: Bus, cache: str) -> AsyncIterator[Member]:
    registry = Registry(bus, "test", "reader")
    await registry.start()
    members = await registry.wait_for("kvcache", lambda all_: any(m.instance == cache for m in all_), 240)
    yield next(member for member in members if member.instance == cache)
    registry.leave()
    await close_channels()


@pytest.fixture
async def stub(member: Member) -> KvCacheStub:
    return KvCacheStub(channel(member.address))


async def store(stub: KvCacheStub, pages: Sequence[pb.Page], tenant: str = "t") -> int:
    return (await stub.Store(iter([pb.StoreRequest(tenant=tenant, pages=pages)]))).stored


def arena_of(member: Member) -> bytes:
    return Path(member.status["arena"]).read_bytes()


async def fetch(stub: KvCacheStub, keys: Sequence[bytes]) -> list[pb.Page]:
    return [page async for response in stub.Fetch(pb.FetchRequest(keys=keys)) for page in response.pages]


async def test_pages_come_back_in_order_up_to_the_first_that_is_missing(stub: KvCacheStub) -> None:
    pages = [page(key(number)) for number in range(6)]
    assert await store(stub, pages) == 6
    assert await store(stub, pages) == 0
    asked = [key(number) for number in (0, 1, 2, 3, 99, 4)]
    assert (await stub.Lookup(pb.LookupRequest(keys=asked))).leading == 4
    fetched = await fetch(stub, asked)
    assert [(each.key, each.data, each.checksum) for each in fetched] == [
        (each.key, each.data, each.checksum) for each in pages[:4]
    ]


async def test_shared_pages_are_told_by_their_place_in_the_arena(stub: KvCacheStub, member: Member) -> None:
    stored = page(key(50))
    await store(stub, [stored])
    call = stub.Fetch(pb.FetchRequest(keys=[key(50)], shared=True))
    (response,) = [response async for response in call]
    (fetched,) = response.pages
    arena = arena_of(member)
    assert arena.startswith(bytes.fromhex(member.status["arena_token"]))
    assert not fetched.data
    for number in range(1000, 1040):
        await store(stub, [page(key(number))])
    assert arena_of(member)[fetched.offset : fetched.offset + fetched.size] == stored.data
    await stub.Release(pb.ReleaseRequest(lease=response.lease))
    await stub.Release(pb.ReleaseRequest(lease=response.lease))


async def test_a_page_that_was_changed_on_its_way_is_refused(stub: KvCacheStub) -> None:
    wrong = page(key(60))
    wrong.checksum ^= 1
    for request in (
        pb.StoreRequest(tenant="t", pages=[wrong]),
        pb.StoreRequest(tenant="t", pages=[pb.Page(key=b"short", tokens=1)]),
        pb.StoreRequest(tenant="t", pages=[pb.Page(key=key(61))]),
        pb.StoreRequest(tenant="t", pages=[pb.Page(key=key(61), tokens=1, seconds=float("nan"))]),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Store(iter([request]))
        assert isinstance(from_rpc(caught.value), InvalidRequest)
    assert await fetch(stub, [key(60)]) == []


def has(instance: str) -> Callable[[Sequence[Member]], bool]:
    return lambda members: any(member.instance == instance for member in members)


def lacks(instance: str) -> Callable[[Sequence[Member]], bool]:
    return lambda members: all(member.instance != instance for member in members)


async def test_pages_on_disk_outlive_the_process_and_those_in_memory_go_there_when_it_ends(
    bus: Bus, shared_nats: str, tmp_path: Path
) -> None:
    registry = Registry(bus, "test", "reader")
    await registry.start()
    settings = {
        "nats_url": shared_nats,
        "tiers": "memory,disk",
        "quotas": "memory=1000000,disk=50000000",
        "options": f'{{"disk": {{"path": "{tmp_path / "pages"}"}}}}',
    }
    pages = [page(key(number)) for number in range(8)]
    for name in ("first", "second"):
        with running("kvcache", tmp_path / "log", instance=name, **settings) as process:
            members = await registry.wait_for("kvcache", has(name), 240)
            (member,) = (each for each in members if each.instance == name)
            assert member.status["shard"] == "first"
            stub = KvCacheStub(channel(member.address))
            if name == "first":
                await store(stub, pages)
            fetched = await fetch(stub, [each.key for each in pages])
            assert [each.data for each in fetched] == [each.data for each in pages]
            if name == "first":
                process.terminate()
                assert await asyncio.to_thread(process.wait) == 0
        await registry.wait_for("kvcache", lacks(name), 240)
    registry.leave()
    await close_channels()


async def test_pages_of_a_tenant_that_was_erased_while_the_cache_was_away_are_gone_when_it_is_back(
    jetstream: str, tmp_path: Path
) -> None:
    bus = Bus()
    await bus.connect(jetstream, "test", wait_s=10)
    registry, marks = Registry(bus, "test", "reader"), Bucket(bus, BUCKET)
    await registry.start()
    await marks.open()
    settings = {"nats_url": jetstream, "tiers": "disk", "options.disk.path": tmp_path / "pages", "instance": "away"}
    with running("kvcache", tmp_path / "log", **settings) as process:
        (member,) = await registry.wait_for("kvcache", bool, 240)
        there = KvCacheStub(channel(member.address))
        for tenant in ("gone", "stays"):
            assert await store(there, [page(key(1, tenant))], tenant) == 1
        process.stop()
        await marks.put("gone", msgspec.json.encode(Erasure(time.time())))
        process.start()
        process.wait_ready()
        assert [file.name for file in (tmp_path / "pages").glob("*/??/*")] == [key(1, "stays").hex()]
    registry.leave()
    await close_channels()
    await bus.close()
