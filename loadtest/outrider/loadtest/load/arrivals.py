"""Shapes of load: so many requests at a time, or arrivals that do not wait for answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from outrider.loadtest.load.client import Reply, RequestError

Send = Callable[[], Awaitable[Reply]]


@dataclass(frozen=True)
class Sample:
    """One request: when it was due (`time.perf_counter`), and its reply or what went wrong."""

    due: float
    reply: Reply | None
    error: str = ""


@dataclass(frozen=True)
class Closed:
    """``concurrency`` clients, each of which sends its next request when its last one is answered."""

    concurrency: int

    def __str__(self) -> str:
        """As named in tables."""
        return f"concurrency {self.concurrency}"

    async def run(self, sends: Iterator[Send], requests: int) -> list[Sample]:
        """Samples of ``requests`` requests, in the order in which they ended."""
        samples: list[Sample] = []
        left = iter(range(requests))

        async def client() -> None:
            for _ in left:
                samples.append(await _sample(time.perf_counter(), next(sends)))

        await asyncio.gather(*(client() for _ in range(self.concurrency)))
        return samples


@dataclass(frozen=True)
class Open:
    """Arrivals at random, ``rate`` a second on average (a Poisson process), the same ones for the same seed.

    A request's clock starts when it was due, so that a server which falls behind is charged for the queue.
    """

    rate: float
    seed: int = 0

    def __str__(self) -> str:
        """As named in tables."""
        return f"rate {self.rate:g}/s"

    async def run(self, sends: Iterator[Send], requests: int) -> list[Sample]:
        """Samples of ``requests`` requests, in the order in which they were due."""
        draw = random.Random(self.seed)
        due, tasks = time.perf_counter(), []
        for _ in range(requests):
            due += draw.expovariate(self.rate)
            await asyncio.sleep(due - time.perf_counter())
            tasks.append(asyncio.create_task(_sample(due, next(sends))))
        return await asyncio.gather(*tasks)


Load = Closed | Open


async def _sample(due: float, send: Send) -> Sample:
    try:
        return Sample(due, await send())
    except RequestError as error:
        return Sample(due, None, str(error))
