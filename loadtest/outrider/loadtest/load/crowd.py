"""Clients of one tenant that send requests without a pause, and counts of their answers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import msgspec
from outrider.loadtest.load.client import RequestError, read_events
from outrider.loadtest.load.prompts import held_out, unique

_CHARACTERS = 200
_AGAIN_S = 1.0
"""Seconds after which a refused client tries again, as ``Retry-After`` says."""


class Timed(msgspec.Struct, frozen=True):
    """Seconds from the request to its first token, and to its last."""

    first_s: float
    whole_s: float


class _Extension(msgspec.Struct):
    tokens: list[int] = []


class _Event(msgspec.Struct):
    outrider: _Extension | None = None
    error: dict[str, object] | None = None


_decode = msgspec.json.Decoder(_Event).decode


class Crowd:
    """A tenant's clients; counts tokens, failures and answers of requests sent since `reset`."""

    def __init__(self, name: str, key: str, urls: list[str]) -> None:
        self.name, self.urls, self._key = name, urls, key
        self._prompts = unique(held_out(_CHARACTERS), name)
        self._turn = itertools.count()
        self.reset()

    def reset(self) -> None:
        """Sets all counts to zero."""
        self.began, self.tokens, self.failed = time.perf_counter(), 0, 0
        self.timed: list[Timed] = []

    async def ask(self, max_tokens: int) -> None:
        """Sends one request; the gateways take turns."""
        url, sent = self.urls[next(self._turn) % len(self.urls)], time.perf_counter()
        body = {"prompt": next(self._prompts), "max_tokens": max_tokens, "ignore_eos": True, "return_tokens": True}
        first = 0.0
        async with aclosing(read_events(url, body | {"stream": True}, self._key)) as events:
            async for data in events:
                event = _decode(data)
                if event.error is not None:
                    raise RequestError(str(event.error))
                first = first or time.perf_counter()
                self.tokens += len(event.outrider.tokens) if event.outrider is not None else 0
        if sent >= self.began:
            self.timed.append(Timed(first - sent, time.perf_counter() - sent))

    async def run(self, max_tokens: int) -> None:
        """Sends requests without end."""
        while True:
            try:
                await self.ask(max_tokens)
            except RequestError:
                self.failed += 1
                await asyncio.sleep(_AGAIN_S)


@asynccontextmanager
async def running(crowd: Crowd, clients: int, max_tokens: int) -> AsyncIterator[None]:
    """``clients`` of ``crowd`` send requests until the block ends, then hang up."""
    tasks = [asyncio.create_task(crowd.run(max_tokens)) for _ in range(clients)]
    try:
        yield
        if failed := next((task for task in tasks if task.done()), None):
            failed.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
