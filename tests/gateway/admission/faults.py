"""Gateways that share limits over a real broker, clients that count the granted units, and faults.

The clock advances a second at a time, so that minutes end in the middle of requests.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NoReturn

from outrider.gateway.admission.account import LEASE_S, SKEW_S
from outrider.gateway.admission.limit_store import LimitReached, LimitStore
from outrider.mesh.errors import Unavailable

from tests.broker import Broker
from tests.gateway.admission.limits import Clock, eventually_answers, gateway_store, streams, tokens

TOKENS, STREAMS, MINUTE_S = 4000, 4, 60
_CLIENTS, _LONGEST_S = 6, 0.02


class GrantedUnits:
    """Units of limits that clients were granted: tokens of each minute, and the running streams of each gateway."""

    def __init__(self) -> None:
        self.used: Counter[int] = Counter()
        self.most: Counter[int] = Counter()
        self.streams: Counter[Gateway] = Counter()

    def reserve(self, window: int, amount: int) -> None:
        """Counts ``amount`` granted tokens; fails if the limit is exceeded."""
        self.used[window] += amount
        self.most[window] = max(self.most[window], self.used[window])
        assert self.used[window] <= TOKENS, f"{self.used[window]} tokens in minute {window}"

    def begin(self, gateway: Gateway) -> None:
        """Counts a granted stream; fails if the limit is exceeded."""
        self.streams[gateway] += 1
        running = sum(number for each, number in self.streams.items() if each is gateway or each.leased)
        assert running <= STREAMS, f"{running} streams at once"


class Gateway:
    """A store and its clients. While it is ``leased``, other gateways must respect its slots."""

    def __init__(
        self, store: LimitStore, clock: Clock, bucket: str, counted: GrantedUnits, chance: random.Random
    ) -> None:
        self.store, self.leased = store, True
        self._clock, self._bucket, self._counted, self._chance = clock, bucket, counted, chance
        self._runs = asyncio.Event()
        self._runs.set()
        self._clients = [asyncio.create_task(self._client()) for _ in range(_CLIENTS)]

    async def second(self) -> None:
        """The work of one second; raises the failures of the clients."""
        if self._runs.is_set():
            await self.store.upkeep()
            self.leased = True
        for client in self._clients:
            if client.done():
                client.result()

    def stop(self) -> None:
        """Acts as SIGSTOP; its streams go on at their verifiers."""
        self._runs.clear()
        self.leased = False

    def go_on(self) -> None:
        """Acts as SIGCONT."""
        self._runs.set()

    async def hang_up(self) -> None:
        """Replaces a client, in the middle of a request or not, by a new one."""
        gone = self._clients.pop(self._chance.randrange(_CLIENTS))
        await _end(gone)
        self._clients.append(asyncio.create_task(self._client()))

    async def die(self) -> None:
        """Ends all streams; their reserved units count as used."""
        self._counted.streams.pop(self, None)
        self._counted = GrantedUnits()
        for client in self._clients:
            await _end(client)

    async def _client(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._chance.random() * _LONGEST_S)
            await self._runs.wait()
            with suppress(LimitReached, Unavailable):
                await self._ask(self._chance.randint(1, 60))

    async def _ask(self, amount: int) -> None:
        reserved, used = await self.store.reserve([tokens(self._bucket, amount, TOKENS)]), 0
        window = round((self._clock() + reserved.statuses[0].reset_s) / MINUTE_S) - 1
        self._counted.reserve(window, amount)
        try:
            used = await self._answer(amount)
        finally:
            reserved.settle([used])
            self._counted.used[window] -= amount - used

    async def _answer(self, amount: int) -> int:
        place = await self.store.reserve([streams(self._bucket, 1, STREAMS)])
        self._counted.begin(self)
        try:
            await asyncio.sleep(self._chance.random() * _LONGEST_S)
            return self._chance.randint(0, amount)
        finally:
            place.settle([0])
            self._counted.streams[self] -= 1


async def _end(client: asyncio.Task[NoReturn]) -> None:
    """Cancels ``client`` until it has ended: nats-py may swallow a cancellation. Raises its failure."""
    while not client.done():
        client.cancel()
        await asyncio.wait([client], timeout=_LONGEST_S)
    if not client.cancelled():
        client.result()


class FaultyGateways:
    """Three gateways on one broker, and their faults."""

    def __init__(self, broker: Broker, store_dir: Path, clock: Clock, bucket: str, seed: int) -> None:
        self.counted = GrantedUnits()
        self._broker, self._store_dir, self._clock, self._bucket = broker, store_dir, clock, bucket
        self._chance, self._stack = random.Random(seed), AsyncExitStack()
        self._gateways: list[Gateway] = []

    async def __aenter__(self) -> FaultyGateways:
        self._gateways = [await self._gateway() for _ in range(3)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for gateway in self._gateways:
            await gateway.die()
        await self._stack.aclose()

    async def run(self, minutes: int) -> None:
        """Runs for ``minutes``; every fault happens in each minute, and the broker restarts in the first one."""
        for minute in range(minutes):
            mishaps = [self._kill, self._stop, self._hang_up] + [self._restart_broker] * (minute == 0)
            self._chance.shuffle(mishaps)
            for mishap in mishaps:
                await self._seconds(self._chance.randrange(MINUTE_S // 4))
                await mishap()

    async def _seconds(self, number: int) -> None:
        for _ in range(number):
            self._clock.now += 1
            await asyncio.gather(*(gateway.second() for gateway in self._gateways))
            await asyncio.sleep(_LONGEST_S / 2)

    async def _gateway(self) -> Gateway:
        store = await self._stack.enter_async_context(gateway_store(self._broker.url, self._clock))
        return Gateway(store, self._clock, self._bucket, self.counted, self._chance)

    async def _kill(self) -> None:
        await self._gateways.pop(self._chance.randrange(len(self._gateways))).die()
        self._gateways.append(await self._gateway())

    async def _stop(self) -> None:
        """One does nothing for longer than its leases last, and goes on."""
        stopped = self._chance.choice(self._gateways)
        stopped.stop()
        await self._seconds(int(LEASE_S + SKEW_S) + 1)
        stopped.go_on()

    async def _restart_broker(self) -> None:
        self._broker.kill()
        await self._seconds(2)
        self._broker.start("--jetstream", "--store_dir", str(self._store_dir))
        for gateway in self._gateways:
            await eventually_answers(gateway.store)

    async def _hang_up(self) -> None:
        for gateway in self._gateways:
            await gateway.hang_up()
