"""Background responses, at any gateway, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from outrider.mesh.registry import Registry
from outrider.wire.frames import Finish

from tests.gateway.stack import Stack
from tests.gateway.streaming import Gateway, finish, holder
from tests.gateway.strict_client import REQUEST, strict
from tests.latch import Latch

pytestmark = pytest.mark.timeout(300)
LONG: Any = REQUEST | {"max_output_tokens": 400}


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with strict(one.url) as made:
        yield made


@pytest.fixture
async def elsewhere(other: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with strict(other.url) as made:
        yield made


async def test_a_background_response_needs_no_reader_and_is_polled_anywhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    made = await client.responses.create(**REQUEST, background=True)
    assert (made.status, made.background, made.output) == ("queued", True, [])
    assert await finish(streaming_registry, made.id.removeprefix("resp_")) is Finish.LENGTH
    whole = await _ended(elsewhere, made.id)
    assert whole.status == "incomplete"
    assert whole.output_text == (await client.responses.create(**REQUEST, store=False)).output_text


async def test_polling_takes_nothing_over_from_a_gateway_that_lives(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, other: Gateway
) -> None:
    taken = other.count("replays_total")
    made = await client.responses.create(**REQUEST | {"max_output_tokens": 1000}, background=True)
    assert (await _ended(elsewhere, made.id)).usage.output_tokens == 1000
    assert other.count("replays_total") == taken


async def test_a_background_stream_goes_on_without_its_reader_and_is_resumed_elsewhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    begun = []
    async for event in await client.responses.create(**LONG, background=True, stream=True):
        begun.append(event.to_dict(mode="json"))
        if len(begun) == 30:
            break
    request = begun[0]["response"]["id"]
    rest = await elsewhere.responses.retrieve(request, stream=True, starting_after=29)
    told = begun + [event.to_dict(mode="json") async for event in rest]
    again = await client.responses.retrieve(request, stream=True)
    assert [event.to_dict(mode="json") async for event in again] == told
    assert told[-1]["response"]["usage"]["output_tokens"] == 400


async def test_a_background_response_outlives_its_gateway_when_it_is_asked_for(
    streaming: Stack, halted: Latch, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    killed = Gateway(streaming, patience_s=1)
    await killed.ready()
    async with strict(killed.url) as client:
        made = await client.responses.create(**LONG, background=True)
    request = made.id.removeprefix("resp_")
    await holder(streaming_registry, request)
    await asyncio.to_thread(killed.process.kill)
    assert await finish(streaming_registry, request) is Finish.CANCELLED
    halted.lift()
    whole = await _ended(elsewhere, made.id)
    assert whole.usage is not None
    assert (whole.status, whole.usage.output_tokens) == ("incomplete", 400)


@pytest.mark.usefixtures("halted")
async def test_cancelling_frees_the_verifier_and_is_told_by_all(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    made = await client.responses.create(**LONG, background=True)
    assert (await elsewhere.responses.cancel(made.id)).status == "cancelled"
    assert await finish(streaming_registry, made.id.removeprefix("resp_")) is Finish.CANCELLED
    for each in (client, elsewhere):
        assert (await each.responses.retrieve(made.id)).status == "cancelled"
        assert (await each.responses.cancel(made.id)).status == "cancelled"
    told = [event async for event in await client.responses.retrieve(made.id, stream=True)]
    assert told[-1].type == "response.failed"
    assert told[-1].response.status == "cancelled"


@pytest.mark.usefixtures("halted")
async def test_a_stored_response_whose_client_left_is_cancelled(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    stream = await client.responses.create(**LONG, stream=True)
    delta = await anext(event async for event in stream if event.type == "response.output_text.delta")
    await stream.close()
    request = delta.item_id.removeprefix("msg_")
    assert await finish(streaming_registry, request) is Finish.CANCELLED
    assert (await _ended(elsewhere, f"resp_{request}")).status == "cancelled"


async def _ended(client: openai.AsyncOpenAI, id_: str) -> Any:
    """The response, polled until its end."""
    async with asyncio.timeout(100):
        while (made := await client.responses.retrieve(id_)).status in ("queued", "in_progress"):
            await asyncio.sleep(0.1)
    return made
