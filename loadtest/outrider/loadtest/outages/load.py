"""Streams while servers die: readers that resume, and what became of their streams."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import httpx
from outrider.loadtest.attack.reader import StreamRecord, client, read
from outrider.loadtest.attack.victims import compare, references, request_bodies

_QUESTIONS = 48
_NO_KEY = "none"


class Load:
    """Readers of the gateways at ``urls``; ``records`` are of the streams that have ended."""

    def __init__(self, urls: Sequence[str], max_tokens: int) -> None:
        self._urls = list(urls)
        self._bodies = request_bodies(_QUESTIONS, max_tokens)
        self._expected: list[list[object]] = []
        self._numbers = itertools.count()
        self.records: list[StreamRecord] = []

    async def learn(self) -> None:
        """Reads every answer once, while nothing is disturbed."""
        self._expected = await references(self._urls, _NO_KEY, self._bodies)

    async def run(self, concurrency: int, seconds: float, least: int) -> None:
        """Reads streams for ``seconds`` and until ``least`` have ended; each of the readers reads one at a time."""
        until = time.monotonic() + seconds
        async with client() as http:
            await asyncio.gather(*(self._reader(http, until, least) for _ in range(concurrency)))

    async def _reader(self, http: httpx.AsyncClient, until: float, least: int) -> None:
        while time.monotonic() < until or len(self.records) < least:
            number = next(self._numbers)
            place = number % _QUESTIONS
            record = compare(await read(http, self._urls, _NO_KEY, self._bodies[place], number), self._expected[place])
            self.records.append(record)


def longest_gap(record: StreamRecord) -> float:
    """Most seconds between two tokens of a stream, or before its first."""
    times = [record.began, *(at for at, _ in record.arrivals)]
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def summary(records: Sequence[StreamRecord]) -> str:
    """One line: streams, what became of them, how many readers connected again, and the longest gap in seconds."""
    outcomes = Counter(record.outcome for record in records)
    again = sum(record.returns > 0 for record in records)
    gap = max(map(longest_gap, records), default=0.0)
    counts = ", ".join(f"{outcomes[what]} {what}" for what in ("altered", "lost", "hung"))
    return f"{len(records)} streams: {counts}; {again} connected again; longest gap {gap:.1f} s"
