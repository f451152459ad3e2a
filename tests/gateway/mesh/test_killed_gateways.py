"""Both gateways are killed while readers connect, in several rounds; ROUNDS and READERS set their numbers.

A stream that no verifier has though somebody was told so would leave its reader waiting.
"""

from __future__ import annotations

import asyncio
import os

import httpx
import pytest
from outrider.mesh.access import Access

from tests.chaos import readers
from tests.chaos.journeys import Journeys
from tests.chaos.questions import Question
from tests.gateway.stack import MODEL, Stack
from tests.gateway.streaming import Gateway

pytestmark = pytest.mark.timeout(1800)  # whichever test comes first waits for a mesh to start

ROUNDS, READERS = int(os.environ.get("ROUNDS", 2)), int(os.environ.get("READERS", 8))
LENGTH = 200


def question(number: int) -> Question:
    told = {"stream": True, "stream_options": {"include_usage": True}, "return_tokens": True, "ignore_eos": True}
    return Question({"model": MODEL, "prompt": "def f(", "seed": number, "max_tokens": LENGTH, **told}, raw=True)


async def ask(urls: list[str]) -> list[readers.Answer]:
    gateways = readers.Gateways(urls, Access(urls[0]))
    journeys = Journeys(lambda: True, hung_s=readers.PATIENCE_S)

    async def one(number: int) -> readers.Answer:
        return await readers.by_hand(gateways, question(number), number, journeys.begin(number))

    return await asyncio.gather(*map(one, range(READERS)))


async def busy(urls: list[str]) -> None:
    """Returns when one of the gateways has streams."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
        while True:
            for url in urls:
                try:
                    lines = (await http.get(f"{url}/metrics")).text.splitlines()
                except httpx.TransportError:
                    continue
                if any(line.startswith("outrider_gateway_streams ") and not line.endswith(" 0.0") for line in lines):
                    return


async def test_no_reader_waits_for_ever_where_both_gateways_are_killed_while_all_connect(
    streaming: Stack, other: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "PATIENCE_S", 300.0)
    wanted = await ask([other.url])
    gateways = [Gateway(streaming), Gateway(streaming)]
    await asyncio.gather(*(gateway.ready() for gateway in gateways))
    urls = [gateway.url for gateway in gateways]
    for _ in range(ROUNDS):
        asking = asyncio.create_task(ask(urls))
        await busy(urls)
        for gateway in gateways:
            await asyncio.to_thread(gateway.process.kill)
        for gateway in gateways:
            gateway.process.start()
        await asyncio.gather(*(gateway.ready() for gateway in gateways))
        assert await asking == wanted
    for gateway in gateways:
        gateway.process.stop()
