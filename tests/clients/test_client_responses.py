"""Responses of the Python clients against a real mesh whose processes are killed while they read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from httpx_sse import ServerSentEvent
from outrider_client import (
    AsyncClient,
    BadRequestError,
    Client,
    NotFoundError,
    ResponseEvent,
    ServiceUnavailableError,
)
from outrider_client.reading import ResponseReading

from tests.gateway.stack import CONTEXT, Stack
from tests.gateway.streaming import Gateway

pytestmark = pytest.mark.timeout(300)  # the first test waits for a mesh to start

ASKED: dict[str, Any] = {"seed": 7, "max_output_tokens": 400, "ignore_eos": True}
ENDLESS = ASKED | {"max_output_tokens": CONTEXT - 100}


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(one.url) as made:
        yield made


def _text(events: list[ResponseEvent]) -> str:
    """The text of events; no event may be missing or repeated."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return "".join(event.text for event in events)


async def test_events_make_up_the_response(client: AsyncClient) -> None:
    whole = await client.responses.create("def f(", **ASKED)
    events = [event async for event in client.responses.stream("def f(", **ASKED)]
    assert _text(events) == whole.text != ""
    last = events[-1].response
    assert last is not None
    assert (last.text, last.status) == (whole.text, "incomplete")
    assert last.usage is not None
    assert last.usage.output_tokens == 400
    going_on = await client.responses.create("more", previous_response_id=whole.id, max_output_tokens=3)
    assert going_on.usage is not None
    assert going_on.usage.input_tokens > 400


async def test_a_killed_gateway_goes_unnoticed(streaming: Stack, one: Gateway, client: AsyncClient) -> None:
    killed = Gateway(streaming)
    await killed.ready()
    events: list[ResponseEvent] = []
    async with AsyncClient([killed.url, one.url]) as both, both.responses.stream("def f(", **ASKED) as stream:
        async for event in stream:
            events.append(event)
            if len(events) == 10:
                await asyncio.to_thread(killed.process.kill)
    assert _text(events) == (await client.responses.create("def f(", **ASKED)).text


@pytest.mark.usefixtures("halted")
async def test_a_background_response_goes_on_until_it_is_cancelled(client: AsyncClient, other: Gateway) -> None:
    begun = await client.responses.create("def f(", background=True, **ENDLESS)
    assert begun.status in ("queued", "in_progress")
    async with AsyncClient(other.url) as elsewhere:
        async with elsewhere.responses.resume(begun.id, 4) as stream:
            events = [await anext(aiter(stream)) for _ in range(3)]
        assert [event.sequence_number for event in events] == [5, 6, 7]
        assert stream.sequence_number == 7
        assert (await client.responses.retrieve(begun.id)).status == "in_progress"
        cancelled = await elsewhere.responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert (await client.responses.retrieve(begun.id)).status == "cancelled"


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.usefixtures("halted")
async def test_leaving_a_stream_ends_a_foreground_response(client: AsyncClient, background: bool) -> None:
    async with client.responses.stream("def f(", background=background, **ENDLESS) as stream:
        async for event in stream:
            if event.text:
                break
    if not background:
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(stream.id)
        return
    assert (await client.responses.retrieve(stream.id)).status == "in_progress"
    await client.responses.delete(stream.id)


def test_the_synchronous_client_does_the_same(one: Gateway) -> None:
    with Client(one.url) as client:
        parameters = ASKED | {"max_output_tokens": 20}
        whole = client.responses.create("def f(", **parameters)
        with client.responses.stream([{"role": "user", "content": "def f("}], **parameters) as stream:
            events = list(stream)
        assert _text(events) == whole.text == client.responses.retrieve(stream.id).text
        assert list(client.responses.resume(stream.id, 3)) == events[4:]
        assert list(client.responses.resume(stream.id, stream.sequence_number)) == []
        with pytest.raises(BadRequestError, match="background") as refused:
            client.responses.cancel(stream.id)
        assert refused.value.param == "id"
        client.responses.delete(stream.id)
        with pytest.raises(NotFoundError):
            list(client.responses.resume(stream.id))
        unstored = list(client.responses.stream("def f(", store=False, **parameters))
        assert _text(unstored) == whole.text


def test_a_failure_that_may_pass_leaves_the_stream_where_it_was() -> None:
    reading = ResponseReading.of("a", {})
    reading.connected(httpx.Response(200, headers={"x-request-id": "7", "content-type": "text/event-stream"}))
    delta = {"type": "response.output_text.delta", "sequence_number": 4, "delta": "a"}
    broken = {"type": "error", "sequence_number": 5, "code": "service_unavailable_error", "message": "b"}
    assert reading.take(ServerSentEvent(data=msgspec.json.encode(delta).decode())) == ResponseEvent(**delta)
    with pytest.raises(ServiceUnavailableError):
        reading.take(ServerSentEvent(data=msgspec.json.encode(broken).decode()))
    assert not reading.done
    assert reading.request.path == "/v1/responses/resp_7?stream=true&starting_after=4"
