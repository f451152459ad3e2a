"""Adds a KV cache under load and kills one: counts pages that are not found, and requests that fail."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import grpc
import msgspec
from outrider.loadtest.load.one_verifier import ask
from outrider.loadtest.meshes.site import Site
from outrider.mesh.registry import Member

_PAGE = 16
_TOKENS = 2 * _PAGE + 1
"""Tokens of a prompt: its pages are one segment, so that a page on another cache costs no other pages."""
_CLIENTS = 2
_SETTLE_S = 1.5
"""Seconds until every service knows of an instance that comes or goes."""
Prompts = list[list[int]]


class CacheChurn(msgspec.Struct, frozen=True):
    """Share of the pages that moved; requests under load that failed or got another answer."""

    pages: int
    moved: float
    answers: int
    failed: int
    different: int


class _Load:
    """Clients that send the same prompts to all verifiers over and over."""

    def __init__(self, verifiers: Sequence[Member], prompts: Prompts) -> None:
        self._turns = itertools.cycle(itertools.product(range(len(prompts)), verifiers))
        self._prompts, self._stop = prompts, False
        self._answers: dict[int, list[int]] = {}
        self.answers = self.failed = self.different = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(_CLIENTS)))

    def stop(self) -> None:
        self._stop = True

    async def _client(self) -> None:
        while not self._stop:
            number, verifier = next(self._turns)
            self.answers += 1
            try:
                tokens = (await ask(verifier, self._prompts[number], max_tokens=4, temperature=1.0)).tokens
            except grpc.aio.AioRpcError:
                self.failed += 1
                continue
            self.different += tokens != self._answers.setdefault(number, tokens)


async def add_and_kill_caches(site: Site, count: int, **verifier: object) -> CacheChurn:
    """Adds a third KV cache to two that hold the pages of ``count`` prompts, and kills one, under other load.

    Args:
        site: an empty site.
        count: prompts that are stored, and sent again when the third KV cache is ready.
        verifier: settings of the verifiers.
    """
    for name in ("one", "two"):
        await site.start("kvcache", name)
    writer, reader = [await site.start("verifier", name, **verifier) for name in ("writer", "reader")]
    stored, others = _prompts(0, count), _prompts(1, 32)
    for number, prompt in enumerate(stored, 1):
        await ask(writer, prompt)
        await _wait_until_stored(site, 2 * number)
    load = _Load((writer, reader), others)
    running = asyncio.create_task(load.run())
    await site.start("kvcache", "three")
    await asyncio.sleep(_SETTLE_S)
    cached = [(await ask(reader, prompt)).cached for prompt in stored]
    await asyncio.to_thread(site.kill, "two")
    await asyncio.sleep(2 * _SETTLE_S)
    load.stop()
    await running
    pages = 2 * len(stored)
    return CacheChurn(pages, 1 - sum(cached) / (pages * _PAGE), load.answers, load.failed, load.different)


async def _wait_until_stored(site: Site, pages: int) -> None:
    """Waits at every 64th page until the caches report all pages: few enough are in flight that none is dropped."""
    if pages % 64 == 0 or pages == 2:
        await site.registry.wait_for(
            "kvcache", lambda caches: sum(cache.status["pages"] for cache in caches) >= pages, 30
        )


def _prompts(seed: int, count: int) -> Prompts:
    dice = random.Random(seed)
    return [[dice.randrange(256) for _ in range(_TOKENS)] for _ in range(count)]
