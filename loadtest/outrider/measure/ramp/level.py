"""One rate of an open load, and what became of its requests."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import msgspec
from outrider.measure.load.client import Reply, RequestError
from outrider.measure.ramp.schedules import Arrival

Send = Callable[[Arrival], Awaitable[Reply]]
UNFINISHED = "not finished in time"


class Request(msgspec.Struct, frozen=True):
    """A measured request.

    Attributes:
        due_s: when it was due, in seconds after the warm-up.
        first_s, whole_s: seconds from then to the first and to the last token; None without an answer.
        tokens: tokens of the answer.
        error: why there is no answer.
    """

    due_s: float
    first_s: float | None
    whole_s: float | None
    tokens: int
    error: str = ""

    @property
    def token_s(self) -> float | None:
        """Seconds for each token after the first (TPOT)."""
        if self.first_s is None or self.whole_s is None or self.tokens < 2:
            return None
        return (self.whole_s - self.first_s) / (self.tokens - 1)


class Level(msgspec.Struct, frozen=True):
    """A rate: its measured requests; for each second of the measured time, tokens that came and answers that ended."""

    rate: float
    seconds: float
    repeat: int
    requests: list[Request]
    tokens: list[float]
    ends: list[int]

    @property
    def errors(self) -> Counter[str]:
        """Reasons of requests without an answer."""
        return Counter(request.error for request in self.requests if request.error)

    @property
    def keeps_up(self) -> bool:
        """Whether as many answers ended as requests arrived, but for a tenth."""
        return sum(self.ends) >= KEPT * len(self.requests)


KEPT = 0.9
"""Least part of the arriving requests that end in the same time where a mesh keeps up."""


@dataclass(frozen=True)
class Timing:
    """Seconds that are not measured, seconds that are, and seconds that are left to requests due at their end."""

    warm_up_s: float
    seconds: float
    patience_s: float


class Run:
    """Sends what is due, whatever becomes of it. The load goes on until all measured requests have ended."""

    def __init__(self, rate: float, repeat: int, timing: Timing, send: Send) -> None:
        self._rate, self._repeat, self._timing, self._send = rate, repeat, timing, send
        self._requests: dict[int, Request] = {}
        self._tokens = [0.0] * math.ceil(timing.seconds)
        self._ends = [0] * math.ceil(timing.seconds)

    async def level(self, arrivals: Iterator[Arrival]) -> Level:
        """Runs the level to its end."""
        timing, tasks = self._timing, dict[asyncio.Task[None], int]()
        self._zero = time.perf_counter() + timing.warm_up_s
        measured: set[asyncio.Task[None]] = set()
        for number, arrival in enumerate(arrivals):
            due = arrival.at - timing.warm_up_s
            if due >= timing.seconds and (due >= timing.seconds + timing.patience_s or all(t.done() for t in measured)):
                break
            await asyncio.sleep(self._zero + due - time.perf_counter())
            task = asyncio.create_task(self._one(number, due, arrival))
            tasks[task] = number
            if 0 <= due < timing.seconds:
                measured.add(task)
                self._requests[number] = Request(due, None, None, 0, UNFINISHED)
        if pending := [task for task in measured if not task.done()]:
            left = self._zero + timing.seconds + timing.patience_s - time.perf_counter()
            await asyncio.wait(pending, timeout=max(left, 0))
        await _end(list(tasks))
        return Level(self._rate, timing.seconds, self._repeat, list(self._requests.values()), self._tokens, self._ends)

    async def _one(self, number: int, due: float, arrival: Arrival) -> None:
        try:
            reply = await self._send(arrival)
        except RequestError as error:
            return self._note(number, Request(due, None, None, 0, str(error)))
        times = [moment - self._zero for moment in reply.arrivals]
        for moment in times:
            if 0 <= moment < self._timing.seconds:
                self._tokens[int(moment)] += reply.completion_tokens / len(times)
        if 0 <= times[-1] < self._timing.seconds:
            self._ends[int(times[-1])] += 1
        self._note(number, Request(due, times[0] - due, times[-1] - due, reply.completion_tokens))

    def _note(self, number: int, request: Request) -> None:
        if number in self._requests:
            self._requests[number] = request


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
