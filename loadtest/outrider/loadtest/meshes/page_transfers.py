"""Measures how fast pages are fetched from a KV cache, beside a copy in memory."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from outrider.mesh.registry import Member
from outrider.mesh.rpc import channel, local_target
from outrider.v1 import kvcache_pb2 as pb
from outrider.v1.kvcache_pb2_grpc import KvCacheStub
from outrider.wire.pages import page_checksum

_BATCH = 8


async def transfer_rates(cache: Member, page_bytes: int, pages: int, rounds: int) -> dict[str, float]:
    """GB/s of the best round by transport: ``memcpy``; ``shared``, ``unix`` and ``tcp`` with checksums.

    Args:
        cache: a KV cache on this host.
        page_bytes: bytes of a page.
        pages: pages fetched at once.
        rounds: rounds of each transport.
    """
    stub, keys = KvCacheStub(channel(cache.address)), [os.urandom(32) for _ in range(pages)]
    near = KvCacheStub(channel(local_target(cache.address, cache.status.get("socket"))))
    random = [_page(key, page_bytes) for key in keys]
    batches = [random[start : start + _BATCH] for start in range(0, pages, _BATCH)]
    await stub.Store(iter([pb.StoreRequest(tenant="loadtest", pages=batch) for batch in batches]))
    arena = _map(Path(cache.status["arena"]))

    async def copy() -> int:
        return sum(len(bytearray(page.data)) for page in random)

    async def fetch(stub: KvCacheStub, shared: bool = False) -> int:
        size, lease = 0, 0
        async for response in stub.Fetch(pb.FetchRequest(keys=keys, shared=shared)):
            lease = response.lease
            for page in response.pages:
                data = arena[page.offset : page.offset + page.size] if shared else page.data
                if page_checksum(page.key, data) != page.checksum:
                    raise SystemExit("a page does not match its checksum")
                size += len(data)
        await stub.Release(pb.ReleaseRequest(lease=lease))
        return size

    rates = {
        "memcpy": await _best(rounds, copy),
        "shared": await _best(rounds, lambda: fetch(stub, shared=True)),
        "unix": await _best(rounds, lambda: fetch(near)),
        "tcp": await _best(rounds, lambda: fetch(stub)),
    }
    arena.close()
    return rates


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _page(key: bytes, size: int) -> pb.Page:
    data = os.urandom(size)
    return pb.Page(key=key, data=data, checksum=page_checksum(key, data), tokens=16, seconds=1.0)


async def _best(rounds: int, run: Callable[[], Awaitable[int]]) -> float:
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        size = await run()
        rates.append(size / (time.perf_counter() - began) / 1e9)
    return max(rates)
