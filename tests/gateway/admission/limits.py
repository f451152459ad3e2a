"""Real stores of limits, on a clock that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from secrets import token_hex

from outrider.gateway.admission.limit_store import GROUP, Demand, LimitReached, LimitStore
from outrider.gateway.admission.memory_limits import MemoryStore
from outrider.gateway.admission.shared_limits import NatsStore
from outrider.mesh import plugins
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Unavailable

STORES: dict[str, Callable[..., LimitStore]] = {"memory": MemoryStore, "nats": NatsStore} | plugins.available(GROUP)
DAY = 86400


class Clock:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.now = 20_000.0 * DAY

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def gateway_store(url: str, clock: Clock, name: str = "nats") -> AsyncIterator[LimitStore]:
    """A store with a connection of its own, as a gateway has it."""
    bus = Bus()
    await bus.connect(url, "test", wait_s=10)
    store = STORES[name](bus, clock)
    await store.start()
    yield store
    await bus.close()


def tokens(bucket: str, amount: int, limit: int = 1000, period_s: int = 60) -> Demand:
    """A demand for tokens of a period."""
    return Demand(f"test.{bucket}.tokens", "tokens per minute", "tenant test", limit, period_s, amount)


def streams(bucket: str, amount: int = 1, limit: int = 4) -> Demand:
    """A demand for concurrent streams."""
    return Demand(f"test.{bucket}.streams", "concurrent streams", "tenant test", limit, 0, amount)


async def refused(store: LimitStore, *demands: Demand) -> bool:
    """Whether the store refuses ``demands``; granted units are settled as used."""
    try:
        (await store.reserve(demands)).settle([demand.amount for demand in demands])
    except LimitReached:
        return True
    return False


async def drain(store: LimitStore, demand: Demand) -> int:
    """The number of times that the store grants ``demand`` in a row, without settling."""
    count = 0
    while True:
        try:
            await store.reserve([demand])
        except LimitReached:
            return count
        count += 1


async def eventually_answers(store: LimitStore) -> None:
    """Returns when the store's broker is back."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.reserve([tokens(token_hex(4), 1)])
                return
            except Unavailable:
                await asyncio.sleep(0.05)
