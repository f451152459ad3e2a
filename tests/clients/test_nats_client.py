"""The client over NATS against a real mesh whose processes are killed while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry
from outrider.wire import frames
from outrider.wire.frames import Finish, Frame, encode_frame
from outrider_client import (
    AsyncClient,
    BadRequestError,
    CancelledError,
    Chunk,
    ConnectionFailedError,
    DeadlineError,
    GatewayError,
    NotFoundError,
)
from outrider_client import nats as over_nats
from outrider_client.nats import frames as client_frames

from tests.gateway.deadlines import SOON_MS, answers_seem_short
from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway, finish, holder, spare
from tests.latch import FEW, Latch

pytestmark = pytest.mark.timeout(300)  # the first test waits for a mesh to start

MESSAGES = [{"role": "user", "content": "def f("}]
ASKED: dict[str, Any] = {"seed": 7, "max_tokens": 400, "ignore_eos": True}


@pytest.fixture
async def client(streaming: Stack, one: Gateway) -> AsyncIterator[over_nats.AsyncClient]:
    async with over_nats.AsyncClient(streaming.broker.url, silence_s=2) as made:
        yield made


async def _whole(one: Gateway, **more: Any) -> list[int]:
    async with AsyncClient(one.url) as http:
        detail = (await http.complete("def f(", **ASKED | {"return_tokens": True} | more)).outrider
    assert detail is not None
    return detail.tokens


def _tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in (chunk.outrider.tokens if chunk.outrider else [])]


async def test_answers_are_those_of_http(one: Gateway, client: over_nats.AsyncClient) -> None:
    plain = {"speculation": "off", "return_drafts": True}
    parameters = ASKED | plain | {"max_tokens": 30, "n": 2, "logprobs": 1, "echo": True}
    async with AsyncClient(one.url) as http:
        whole = await http.complete("def f(", **parameters, return_tokens=True)
        http_chat = await http.chat(MESSAGES, seed=7, max_tokens=20)
    answer = await client.complete("def f(", **parameters)
    assert [choice.text for choice in answer.choices] == [choice.text for choice in whole.choices]
    assert answer.usage == whole.usage
    assert answer.outrider is not None
    assert whole.outrider is not None
    assert [each.tokens for each in answer.outrider.choices] == [each.tokens for each in whole.outrider.choices]
    assert [each.drafts for each in answer.outrider.choices] == [each.drafts for each in whole.outrider.choices]
    assert [len(each.drafts) for each in answer.outrider.choices] == [30, 30]
    assert answer.model == MODEL
    chat = await client.chat(MESSAGES, seed=7, max_tokens=20)
    assert (chat.text, chat.choices[0].finish_reason) == (http_chat.text, http_chat.choices[0].finish_reason)
    assert await client.models() == [MODEL]


async def test_a_late_answer_is_a_deadline_error(halted: Latch, one: Gateway, client: over_nats.AsyncClient) -> None:
    await answers_seem_short(one.url)
    endless = ASKED | {"max_tokens": CONTEXT - 100, "stop": ["nobody says this"], "timeout_ms": SOON_MS}
    with pytest.raises(DeadlineError, match=r"the answer (did not end|would take)"):
        await client.complete("def f(", **endless)


async def test_a_stream_goes_on_in_another_process(one: Gateway, client: over_nats.AsyncClient) -> None:
    whole = await _whole(one)
    async with client.stream("def f(", **ASKED) as stream:
        chunks = [chunk async for chunk in stream]
    assert _tokens(chunks) == whole
    assert stream.next == [400]
    assert _tokens([chunk async for chunk in client.resume(stream.id, [390])]) == whole[390:]


async def test_a_gateway_killed_with_its_verifier_goes_unnoticed(
    streaming: Stack, one: Gateway, client: over_nats.AsyncClient, streaming_registry: Registry
) -> None:
    whole = await _whole(one)
    killed = Gateway(streaming)
    await spare(streaming)
    await killed.ready()
    chunks: list[Chunk] = []
    async with client.stream("def f(", **ASKED) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 5:
                dead = await holder(streaming_registry, stream.id)
                verifiers = [each for each in streaming.processes if each.settings.get("instance") == dead]
                for process in [killed.process, *verifiers]:
                    await asyncio.to_thread(process.kill)
    assert _tokens(chunks) == whole


@pytest.mark.parametrize("note", [True, False], ids=["a note", "a gap"])
async def test_a_gap_or_a_note_makes_the_client_read_through_a_gateway(
    one: Gateway, client: over_nats.AsyncClient, bus_there: Bus, note: bool
) -> None:
    whole = await _whole(one)
    chunks: list[Chunk] = []
    async with client.stream("def f(", **ASKED) as stream:
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 5:
                subject = await client.subject_prefix() + stream.id.rpartition("-")[2]
                place, why = (0, "given up") if note else (1000, None)
                lost = Frame(
                    stream.id, place, [] if note else [1], [] if note else ["a"], [] if note else [""], error=why
                )
                bus_there.publish(subject, encode_frame(lost))
    assert _tokens(chunks) == whole


async def test_a_connection_that_nats_ends_makes_the_client_read_on_at_once(streaming: Stack, one: Gateway) -> None:
    whole = await _whole(one)
    chunks: list[Chunk] = []
    async with over_nats.AsyncClient(streaming.broker.url, silence_s=1000) as client:
        with streaming.latch.at(FEW):
            stream = client.stream("def f(", **ASKED)
            async for chunk in stream:
                chunks.append(chunk)
                if len(_tokens(chunks)) == FEW:
                    await (await client.connected()).close()
                    break
        chunks += [chunk async for chunk in stream]
    assert _tokens(chunks) == whole


@pytest.fixture
async def bus_there(streaming: Stack) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(streaming.broker.url, "test", wait_s=10)
    yield bus
    await bus.close()


async def _cancel_for_ever(client: over_nats.AsyncClient, request: str) -> None:
    """For seconds after the broker was away, a stream may be unrecorded, and its end is only published."""
    while True:
        await client.cancel(request)
        await asyncio.sleep(0.2)


async def test_errors_are_those_of_the_tree(client: over_nats.AsyncClient) -> None:
    with pytest.raises(BadRequestError, match="temperature") as refused:
        await client.complete("a", temperature=-1)
    assert (refused.value.status, refused.value.param) == (400, "temperature")
    with pytest.raises(NotFoundError) as unknown:
        await client.complete("a", model="none")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(NotFoundError):
        await _cancel_for_ever(client, "unheard-of")
    with pytest.raises(NotFoundError):
        [chunk async for chunk in client.resume("unheard-of")]
    with pytest.raises(BadRequestError, match="ask over HTTP or gRPC"):
        await client.complete("a" * (1 << 20))
    with pytest.raises(BadRequestError, match="leave no token"):
        await client.complete("a", structured_outputs={"choice": ["ab"]}, bad_words=[[i] for i in range(256)])


async def test_an_unreachable_gateway_is_a_connection_error(shared_nats: str) -> None:
    async with over_nats.AsyncClient(shared_nats, max_retries=1) as client:
        with pytest.raises(ConnectionFailedError, match="no gateway answered"):
            await client.models()
    async with over_nats.AsyncClient(f"nats://127.0.0.1:{hold_port()}", timeout=0.5) as nobody:
        with pytest.raises(ConnectionFailedError, match="NATS was not reached"):
            await nobody.models()


async def test_connecting_to_nobody_ends_even_where_an_attempt_fails_at_the_stated_time() -> None:
    url = f"nats://127.0.0.1:{hold_port()}"
    clients = [over_nats.AsyncClient(url, timeout=2 + at / 3000) for at in range(300)]  # nats-py tries every 2 s
    asking = [asyncio.create_task(client.models()) for client in clients]
    await asyncio.wait(asking, timeout=10)
    ended = [task.done() and isinstance(task.exception(), ConnectionFailedError) for task in asking]
    assert all(ended), f"{ended.count(False)} of {len(ended)} still try"


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_is_left_is_not_generated_on(
    client: over_nats.AsyncClient, streaming_registry: Registry
) -> None:
    async with client.stream("def f(", **ASKED | {"max_tokens": CONTEXT - 100}) as stream:
        async for _ in stream:
            break
    assert await finish(streaming_registry, stream.id) is Finish.CANCELLED


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_another_cancels_ends_in_an_error(client: over_nats.AsyncClient) -> None:
    stream = client.stream("def f(", **ASKED | {"max_tokens": CONTEXT - 100})
    async for _ in stream:
        await client.cancel(stream.id)
        break
    with pytest.raises(GatewayError, match="the stream was cancelled") as caught:
        [chunk async for chunk in stream]
    assert isinstance(caught.value, CancelledError)


_MIRRORED = [
    (frames.Frame, client_frames.Frame),
    (frames.Usage, client_frames.FrameUsage),
    (frames.Likelihood, client_frames.Likelihood),
    (frames.Alternative, client_frames.Alternative),
    (frames.Draft, client_frames.Tree),
]


@pytest.mark.parametrize(("sent", "read"), _MIRRORED, ids=lambda kind: kind.__name__)
def test_the_client_reads_every_field_of_a_frame(sent: type[msgspec.Struct], read: type[msgspec.Struct]) -> None:
    sent_fields, read_fields = ([(f.name, f.default) for f in msgspec.structs.fields(kind)] for kind in (sent, read))
    assert sent_fields == read_fields


def test_a_thought_stands_beside_the_text() -> None:
    choices = client_frames.Choices("r", [0], echoed=False)
    usage = frames.Usage(3, 3, steps=2, reasoning_tokens=2)
    parts = [
        choices.take(encode_frame(Frame("r", 0, [1, 2], ["I ", "wonder"], ["", ""], thought=2))),
        choices.take(encode_frame(Frame("r", 1, [2, 3], ["wonder", "so"], ["", ""], Finish.STOP, usage, thought=1))),
    ]
    told = [(part.text, part.choices[0].delta and part.choices[0].delta.reasoning_content) for part in parts if part]
    assert told == [("", "I wonder"), ("so", None)]
    assert parts[1] is not None
    assert parts[1].usage is not None
    assert parts[1].usage.completion_tokens_details.reasoning_tokens == 2


def test_a_frame_of_a_verifier_is_the_same_frame_in_the_client() -> None:
    draft = frames.Draft(0, [1, 2], [b"a", b"\xff"], [-1, 0], ["model", "ngram"], [0])
    likely = frames.Likelihood(-0.5, b"a", [frames.Alternative(1, -0.5, b"a")])
    usage = frames.Usage(3, 1, 1, 1, 1, steps=1, lossy=True, emitted=0)
    encoded = encode_frame(Frame("r", 0, [1], ["a"], ["model"], Finish.STOP, usage, "why", [likely], "v", [draft]))
    assert msgspec.msgpack.encode(client_frames.read_frame(encoded)) == encoded
