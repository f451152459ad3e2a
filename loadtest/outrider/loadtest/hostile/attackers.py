"""Several attackers that make all cases over and over, each in an order of its own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import nats
from outrider.loadtest.hostile.case import ANSWER_S, Case, Target

PAUSE_S = 0.3
"""Seconds between two cases of an attacker."""


class Attackers:
    """The outcome of every case made: ``made`` counts them, ``faults`` those that were wrong."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases
        self.made, self.faults = 0, Counter[str]()

    @asynccontextmanager
    async def running(self, targets: Sequence[Target]) -> AsyncIterator[None]:
        """One attacker for each of ``targets`` inside the block; ends when all have finished their present case."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number, target in enumerate(targets):
                group.create_task(self._attack(target, random.Random(number), over))
            try:
                yield
            finally:
                over.set()

    async def _attack(self, target: Target, draw: random.Random, over: asyncio.Event) -> None:
        while True:
            for case in draw.sample(self._cases, len(self._cases)):
                if over.is_set():
                    return
                await self.make(case, target)
                await asyncio.sleep(PAUSE_S)

    async def make(self, case: Case, target: Target) -> None:
        """Makes ``case`` once."""
        self.made += 1
        try:
            fault = case.fault(await case.run(target))
        except (OSError, httpx.HTTPError, nats.errors.Error) as error:
            fault = f"{case.name}: {error!r}"
        self.faults.update([fault] if fault else [])


@asynccontextmanager
async def targets(
    url: str, grpc: str, broker: str, model: str, keys: Sequence[str], most: int
) -> AsyncIterator[list[Target]]:
    """A target for each of ``keys``, whose owner may have ``most`` connections."""
    made = []
    async with AsyncExitStack() as stack:
        for key in keys:
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            client = httpx.AsyncClient(base_url=url, headers=headers, timeout=ANSWER_S, trust_env=False)
            http = await stack.enter_async_context(client)
            connection = await nats.connect(broker)
            stack.push_async_callback(connection.close)
            metadata = (("authorization", f"Bearer {key}"),)
            made.append(Target(url, grpc, connection, http, model, key, connections=most, metadata=metadata))
        yield made
