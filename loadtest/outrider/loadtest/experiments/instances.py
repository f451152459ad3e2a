"""A KV cache more, and one less, under load: which pages are not found then, and whether a request fails."""

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
"""Of a prompt: its pages are of one segment, so that one that lies elsewhere costs no others."""
_CLIENTS = 2
_SETTLE_S = 1.5
"""What an instance that comes or goes takes to be known to everybody."""
Prompts = list[list[int]]


class Instances(msgspec.Struct, frozen=True):
    """What came of it: the share of the pages that moved, and of the requests under way those that failed or differ."""

    pages: int
    moved: float
    answers: int
    failed: int
    different: int


class _Load:
    """Clients that ask the same prompts of all verifiers over and over."""

    def __init__(self, verifiers: Sequence[Member], prompts: Prompts) -> None:
        self._turns = itertools.cycle(itertools.product(range(len(prompts)), verifiers))
        self._prompts, self._stop = prompts, False
        self._said: dict[int, list[int]] = {}
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
            self.different += tokens != self._said.setdefault(number, tokens)


async def come_and_go(site: Site, count: int, **verifier: object) -> Instances:
    """Adds a third KV cache to two that hold the pages of ``count`` prompts, and kills one, while clients ask others.

    Args:
        site: an empty one.
        count: of prompts that are stored, and asked for again when the third is there.
        verifier: settings of the verifiers.
    """
    for name in ("one", "two"):
        await site.start("kvcache", name)
    writer, reader = [await site.start("verifier", name, **verifier) for name in ("writer", "reader")]
    stored, others = _prompts(0, count), _prompts(1, 32)
    for number, prompt in enumerate(stored, 1):
        await ask(writer, prompt)
        await _held(site, 2 * number)
    load = _Load((writer, reader), others)
    running = asyncio.create_task(load.run())
    await site.start("kvcache", "three")
    await asyncio.sleep(_SETTLE_S)
    found = [(await ask(reader, prompt)).cached for prompt in stored]
    await asyncio.to_thread(site.kill, "two")
    await asyncio.sleep(2 * _SETTLE_S)
    load.stop()
    await running
    pages = 2 * len(stored)
    return Instances(pages, 1 - sum(found) / (pages * _PAGE), load.answers, load.failed, load.different)


async def _held(site: Site, pages: int) -> None:
    """Now and then waits until the caches tell of so many pages: few enough are then on their way to be dropped."""
    if pages % 64 == 0 or pages == 2:
        await site.registry.wait_for("kvcache", lambda all_: sum(each.status["pages"] for each in all_) >= pages, 30)


def _prompts(seed: int, count: int) -> Prompts:
    dice = random.Random(seed)
    return [[dice.randrange(256) for _ in range(_TOKENS)] for _ in range(count)]
