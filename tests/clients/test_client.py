"""The client against a real mesh whose processes are killed while it reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.registry import Registry
from outrider.wire.frames import Finish
from outrider_client import (
    Answer,
    AsyncClient,
    BadRequestError,
    CancelledError,
    Chunk,
    Client,
    ConnectionFailedError,
    NotFoundError,
)

from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway, finish, holder, spare

pytestmark = pytest.mark.timeout(300)  # the first test waits for a mesh to start

MESSAGES = [{"role": "user", "content": "def f("}]
AFTER_S = float(os.environ.get("RESUME_AFTER_S", 0.3))
LENGTH = 400
ASKED: dict[str, Any] = {"seed": 7, "max_tokens": LENGTH, "ignore_eos": True, "return_tokens": True}


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(one.url) as made:
        yield made


async def _whole(client: AsyncClient) -> list[int]:
    return _tokens([await client.complete("def f(", **ASKED)])


def _tokens(chunks: list[Answer]) -> list[int]:
    return [token for chunk in chunks for token in (chunk.outrider.tokens if chunk.outrider else [])]


async def _read(client: AsyncClient, midway: Callable[[str], Any]) -> list[Chunk]:
    """Reads a stream; calls ``midway`` with its id after five chunks."""
    chunks: list[Chunk] = []
    async with client.stream("def f(", **ASKED) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 5:
                await midway(stream.id)
    assert chunks[-1].choices[0].finish_reason == "length"
    return chunks


async def test_answers_are_typed_and_chunks_add_up_to_them(client: AsyncClient) -> None:
    parameters: dict[str, Any] = {"seed": 7, "max_tokens": 20, "ignore_eos": True}
    whole, chat = await client.complete("def f(", **parameters), await client.chat(MESSAGES, n=2, **parameters)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 20
    assert chat.text == chat.choices[0].content != chat.choices[1].content
    assert [model.id for model in await client.models()] == [MODEL]
    assert "".join([chunk.text async for chunk in client.stream("def f(", **parameters)]) == whole.text
    assert "".join([chunk.text async for chunk in client.stream(messages=MESSAGES, **parameters)]) == chat.text


def test_the_synchronous_client_gets_the_same_answers(one: Gateway) -> None:
    with Client([f"http://127.0.0.1:{hold_port()}", f"{one.url}/v1"]) as client:
        parameters: dict[str, Any] = {"seed": 7, "max_tokens": 20, "ignore_eos": True}
        whole, chat = client.complete("def f(", **parameters), client.chat(MESSAGES, **parameters)
        assert [model.id for model in client.models()] == [MODEL]
        with client.stream("def f(", **parameters) as stream:
            assert "".join(chunk.text for chunk in stream) == whole.text
        assert "".join(chunk.text for chunk in client.stream(messages=MESSAGES, **parameters)) == chat.text
        again = client.resume(stream.id)
        assert "".join(chunk.text for chunk in again) == whole.text
        assert list(client.resume(stream.id, again.last_event_id)) == []
        with pytest.raises(BadRequestError) as refused:
            client.complete("a", temperature=-1)
        assert (refused.value.status, refused.value.param) == (400, "temperature")
        with pytest.raises(NotFoundError):
            client.cancel("unheard-of")


def test_an_unreachable_gateway_is_a_connection_error() -> None:
    with Client(f"http://127.0.0.1:{hold_port()}", max_retries=1) as client, pytest.raises(ConnectionFailedError):
        client.models()


async def test_only_chunks_that_were_read_count_as_received(client: AsyncClient, other: Gateway) -> None:
    first = client.stream("def f(", **ASKED)
    whole = _tokens([chunk async for chunk in first])
    again = client.resume(first.id)  # brings many chunks at once
    chunks = [await anext(aiter(again)) for _ in range(5)]
    async with AsyncClient(other.url) as elsewhere:
        chunks += [chunk async for chunk in elsewhere.resume(again.id, again.last_event_id)]
    assert _tokens(chunks) == whole


async def test_a_stream_of_a_model_that_is_not_served_is_refused(client: AsyncClient) -> None:
    with pytest.raises(NotFoundError) as unknown:
        await anext(aiter(client.stream("a", model="no")))
    assert unknown.value.code == "model_not_found"


async def test_a_killed_gateway_goes_unnoticed(streaming: Stack, one: Gateway, client: AsyncClient) -> None:
    killed = Gateway(streaming)
    await killed.ready()
    async with AsyncClient([killed.url, one.url]) as both:
        chunks = await _read(both, lambda _: asyncio.to_thread(killed.process.kill))
    assert _tokens(chunks) == await _whole(client)


async def test_a_gateway_that_comes_back_behind_the_same_port_goes_unnoticed(
    streaming: Stack, client: AsyncClient
) -> None:
    killed = Gateway(streaming)
    await killed.ready()

    async def replace(_: str) -> None:
        await asyncio.to_thread(killed.process.kill)
        asyncio.get_running_loop().call_later(AFTER_S, killed.process.start)

    async with AsyncClient(killed.url, resume_s=AFTER_S + 60) as alone:
        chunks = await _read(alone, replace)
    assert _tokens(chunks) == await _whole(client)


async def test_a_gateway_killed_with_its_verifier_goes_unnoticed(
    streaming: Stack, one: Gateway, client: AsyncClient, streaming_registry: Registry
) -> None:
    killed = Gateway(streaming)
    await spare(streaming)
    await killed.ready()

    async def kill(request: str) -> None:
        dead = await holder(streaming_registry, request)
        for process in [
            killed.process,
            *(each for each in streaming.processes if each.settings.get("instance") == dead),
        ]:
            process.kill()

    async with AsyncClient([killed.url, one.url]) as both:
        chunks = await _read(both, kill)
    assert _tokens(chunks) == await _whole(client)


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_is_left_is_not_generated_on(client: AsyncClient, streaming_registry: Registry) -> None:
    async with client.stream("def f(", **ASKED | {"max_tokens": CONTEXT - 100}) as stream:
        async for _ in stream:
            break
    assert await finish(streaming_registry, stream.id) is Finish.CANCELLED
    with pytest.raises(NotFoundError):
        await client.cancel(stream.id)


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_another_cancels_ends_in_an_error(client: AsyncClient) -> None:
    with pytest.raises(CancelledError):
        await _read(client, client.cancel)
