"""`outrider tenants erase` and processes that confirm, on a real broker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec
import pytest
from outrider.cli.stores.erasure import TenantErasure
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.erasures import BUCKET, Erasure, Erasures
from outrider.mesh.errors import Unavailable
from outrider.mesh.registry import TIMES, Registry, State
from outrider.mesh.tasks import Tasks
from outrider.wire import tenants
from outrider.wire.tenants import Tenant, key_entry, new_key, tenant_entry


class Process:
    """A member of the mesh that follows erasures; ``faults`` is how often what it holds is out of reach."""

    def __init__(self, bus: Bus, kind: str, faults: int = 0) -> None:
        self.tasks = Tasks()
        self.registry = Registry(bus, kind, f"{kind}-one", tasks=self.tasks)
        self.erasures = Erasures(bus, kind, f"{kind}-one", self.erase, every_s=0.05)
        self.erased: list[str] = []
        self._faults = faults

    async def erase(self, tenant: str, before: float) -> dict[str, int]:
        if self._faults:
            self._faults -= 1
            raise Unavailable("away")
        self.erased.append(tenant)
        return {"things": 3}

    async def join(self, *, follows: bool = True) -> None:
        await self.registry.start()
        self.registry.set_state(State.READY)
        if follows:
            self.tasks.spawn(self.erasures.follow(), "erasures")


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def bus(jetstream: str) -> AsyncIterator[Bus]:
    made = Bus()
    await made.connect(jetstream, "test", 10)
    yield made
    await made.close()


@pytest.fixture
async def start(bus: Bus) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def started(kind: str, *, faults: int = 0, follows: bool = True) -> Process:
            process = Process(bus, kind, faults)
            stack.push_async_callback(process.tasks.cancel)
            stack.callback(process.registry.leave)
            await process.join(follows=follows)
            return process

        yield started
        await bus.close()  # a call to the broker under way may swallow the cancellation of its task


async def erase(bus: Bus, name: str, wait_s: float) -> int:
    tasks = Tasks()
    try:
        registry = Registry(bus, "admin", "admin-one", tasks=tasks, times=TIMES._replace(news_s=0.3))
        return await TenantErasure(bus, registry, name, wait_s).run()
    finally:
        await tasks.cancel()


async def test_every_service_confirms_after_it_could_erase(
    bus: Bus, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway, cache = await start("gateway"), await start("kvcache", faults=1)
    stored = Bucket(bus, tenants.BUCKET)
    await stored.open()
    for name in ("gone", "stays"):
        key, _ = new_key(name, time.time())
        await stored.put(tenant_entry(name), msgspec.json.encode(Tenant(name=name, created=1.0)))
        await stored.put(key_entry(key.id), msgspec.json.encode(key))
    assert await erase(bus, "gone", 30) == 0
    assert gateway.erased == cache.erased == ["gone", "gone"]
    assert {entry.partition(".")[0] for entry in await stored.keys()} >= {"key", "tenant"}
    assert tenant_entry("gone") not in await stored.keys()
    told = capsys.readouterr()
    assert "1 keys, 1 tenants" in told.out
    assert "6 things" in told.out
    assert told.err == ""


async def test_a_service_that_does_not_confirm_is_named_with_exit_code_1(
    bus: Bus, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    await start("gateway")
    await start("kvcache", follows=False)
    assert await erase(bus, "silent", 1) == 1
    assert capsys.readouterr().err == (
        "outrider: not confirmed by kvcache kvcache-one: data may be left there until they answer\n"
    )


async def test_without_a_gateway_records_stay_and_the_exit_code_says_so(
    bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await erase(bus, "alone", 3) == 1
    assert "no gateway confirmed: records of streams stay until one runs" in capsys.readouterr().err


async def test_a_process_that_was_away_applies_what_it_missed_and_nothing_twice(bus: Bus) -> None:
    marks = Bucket(bus, BUCKET)
    await marks.open()
    fresh, lasting = Process(bus, "verifier"), Process(bus, "kvcache")
    await marks.put("missed", msgspec.json.encode(Erasure(1.0)))
    await fresh.erasures.pass_over()
    for _ in range(2):
        await fresh.erasures.apply()
        await lasting.erasures.apply()
    assert "missed" not in fresh.erased
    assert lasting.erased.count("missed") == 1
    await marks.put("missed", msgspec.json.encode(Erasure(2.0)))
    await fresh.erasures.apply()
    assert fresh.erased == ["missed"]
