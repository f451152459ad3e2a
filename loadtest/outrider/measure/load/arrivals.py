"""Shapes of load: a fixed number of requests at a time, or arrivals that do not wait for answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from outrider.measure.load.client import Reply, RequestError

Send = Callable[[], Awaitable[Reply]]


@dataclass(frozen=True)
class Sample:
    """One request: when it was due (`time.perf_counter`), and its reply or error."""

    due: float
    reply: Reply | None
    error: str = ""


@dataclass(frozen=True)
class Closed:
    """``concurrency`` clients; each sends its next request when its last one is answered."""

    concurrency: int

    def __str__(self) -> str:
        """Name in tables."""
        return f"concurrency {self.concurrency}"

    async def run(self, sends: Iterator[Send], requests: int) -> list[Sample]:
        """Samples of ``requests`` requests, in order of their ends."""
        samples: list[Sample] = []
        left = iter(range(requests))

        async def client() -> None:
            for _ in left:
                samples.append(await _sample(time.perf_counter(), next(sends)))

        await asyncio.gather(*(client() for _ in range(self.concurrency)))
        return samples


@dataclass(frozen=True)
class Open:
    """Random arrivals, ``rate`` a second on average (a Poisson process), fixed by the seed.

    The clock of a request starts when the request is due, so that times include the queue of a slow server.
    """

    rate: float
    seed: int = 0

    def __str__(self) -> str:
        """Name in tables."""
        return f"rate {self.rate:g}/s"

    async def run(self, sends: Iterator[Send], requests: int) -> list[Sample]:
        """Samples of ``requests`` requests, in order of their due times."""
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
