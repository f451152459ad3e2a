"""The gateway over HTTP, as clients use it: a real tokenizer and a real verifier behind it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
from outrider.engine.text import Tokenizer
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import channel
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import Finish, decode_frame

from tests.gateway.stack import CONTEXT, MODEL, RUNNING, WAITING, Stack, Streamed
from tests.waiting import eventually

MESSAGES: Any = [{"role": "user", "content": "def parse("}]


@pytest.fixture
async def client(shared: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def http(shared: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as made:
        yield made


def _body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "def parse(", "max_tokens": 12, "seed": 3, "ignore_eos": True} | more


async def test_the_openai_client_completes_and_streams_the_same_text(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "prompt": "def parse(", "max_tokens": 12, "seed": 3}
    whole = await client.completions.create(**asked)
    stream = await client.completions.create(**asked, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert whole.object == chunks[0].object == "text_completion"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 12


async def test_the_openai_client_chats_and_streams_the_same_text(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": MESSAGES, "max_completion_tokens": 12, "seed": 3}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    first, *chunks, last = [chunk async for chunk in stream]
    assert first.choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert (last.usage.completion_tokens, last.usage.total_tokens) == (12, whole.usage.total_tokens)
    assert (whole.object, first.object) == ("chat.completion", "chat.completion.chunk")
    assert whole.system_fingerprint == first.system_fingerprint != ""


async def test_the_openai_client_lists_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.models.retrieve("gpt/5")
    assert unknown.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("more", "kind", "param", "message"),
    [
        ({"max_tokens": -2}, openai.BadRequestError, "max_tokens", "max_tokens must be an integer of at least 1"),
        ({"model": "nope"}, openai.NotFoundError, "model", "the model 'nope' does not exist; there are: toy"),
        ({"prompt": ""}, openai.BadRequestError, "prompt", "prompt must hold at least one token"),
        ({"prompt": "é" * 2 * CONTEXT}, openai.BadRequestError, "prompt", "maximum context length is 4096 tokens"),
        ({"prompt": [5] * CONTEXT}, openai.BadRequestError, "prompt", "4096 tokens leave no room for an answer"),
        ({"prompt": [10**6]}, openai.BadRequestError, "prompt", "outside the vocabulary"),
        ({"extra_body": {"speculation": {"drafters": ["x"]}}}, openai.BadRequestError, "speculation.drafters", "x"),
        ({"extra_body": {"images": ["x"]}}, openai.BadRequestError, "images", "images is not supported"),
    ],
)
async def test_the_openai_client_reads_what_is_wrong(
    client: openai.AsyncOpenAI, more: Any, kind: type[openai.APIStatusError], param: str, message: str
) -> None:
    asked: Any = {"model": MODEL, "prompt": "p"} | more
    with pytest.raises(kind) as caught:
        await client.completions.create(**asked)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["param"] == param
    assert message in caught.value.body["message"]
    assert caught.value.request_id


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"[]", 400),
        ("POST", "/v1/completions", b" " * (1 << 20) + b"{}", 413),
        ("GET", "/v1/completions", b"", 405),
        ("GET", "/v1/nothing", b"", 404),
        ("POST", "/", b"", 405),
        ("GET", "/nothing", b"", 404),
    ],
    ids=["damaged", "no object", "too large", "another method", "no path", "nothing to post", "no page"],
)
async def test_every_refusal_is_an_error_object_with_an_id(
    http: httpx.AsyncClient, method: str, path: str, content: bytes, status: int
) -> None:
    response = await http.request(method, path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]


async def test_a_body_of_unknown_length_is_refused_once_it_is_too_large(http: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * (64 << 10)

    headers = {"content-type": "application/json"}
    with suppress(httpx.WriteError):  # the gateway may have hung up on what it does not want
        assert (await http.post("/v1/completions", content=endless(), headers=headers)).status_code == 413


async def test_tokens_and_their_texts_are_returned_when_asked_for(http: httpx.AsyncClient, shared: Stack) -> None:
    answer = (await http.post("/v1/completions", json=_body(return_tokens=True))).json()
    extra, local = answer["outrider"], Tokenizer.load(shared.directory)
    assert extra["first_index"] == 0
    assert "".join(extra["texts"]) == answer["choices"][0]["text"] == local.decode(extra["tokens"])
    assert len(extra["guessed_by"]) == len(extra["tokens"]) == 12
    assert (extra["steps"], extra["seed"], extra["verifier"]) == (12, 3, "verifier")


async def test_a_seed_of_chance_is_returned_and_reproduces_the_answer(http: httpx.AsyncClient) -> None:
    first = (await http.post("/v1/completions", json=_body(seed=None))).json()
    other = (await http.post("/v1/completions", json=_body(seed=None))).json()
    again = (await http.post("/v1/completions", json=_body(seed=first["outrider"]["seed"]))).json()
    assert again["choices"] == first["choices"] != other["choices"]


async def test_token_ids_are_as_good_a_prompt_as_their_text(http: httpx.AsyncClient, shared: Stack) -> None:
    ids = Tokenizer.load(shared.directory).encode("def parse(")
    text, tokens = [
        (await http.post("/v1/completions", json=_body(prompt=prompt))).json() for prompt in ("def parse(", ids)
    ]
    assert text["choices"] == tokens["choices"]


async def test_a_stop_string_ends_the_text_before_it(http: httpx.AsyncClient) -> None:
    free = (await http.post("/v1/completions", json=_body(max_tokens=40))).json()["choices"][0]["text"]
    stop = free[len(free) // 2 :][:3]
    answer = (await http.post("/v1/completions", json=_body(max_tokens=40, stop=[stop]))).json()["choices"][0]
    assert answer == {"text": free[: free.index(stop)], "finish_reason": "stop", "index": 0, "logprobs": None}


async def test_a_chat_without_a_length_goes_on_until_the_context_is_full(
    http: httpx.AsyncClient, shared: Stack
) -> None:
    local = Tokenizer.load(shared.directory)
    frame = len(local.encode_chat([{"role": "user", "content": ""}]))
    messages = [{"role": "user", "content": "x" * (CONTEXT - 8 - frame)}]
    assert CONTEXT - 64 < len(local.encode_chat(messages)) < CONTEXT
    body = {"model": MODEL, "messages": messages, "ignore_eos": True}
    answer = (await http.post("/v1/chat/completions", json=body)).json()
    assert answer["usage"]["total_tokens"] == CONTEXT
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.usefixtures("shared_halted")
async def test_a_client_that_leaves_a_stream_ends_the_generation(shared: Stack, registry: Registry) -> None:
    stream = Streamed(shared.url, prompt="leaving", max_tokens=CONTEXT - 100)
    reading = asyncio.create_task(stream.run())
    await eventually(lambda: stream.tokens)
    reading.cancel()
    await asyncio.wait({reading})
    assert await _finish(registry, stream.id) is Finish.CANCELLED
    await eventually(lambda: _load(registry) == 0)


@pytest.mark.usefixtures("shared_halted")
async def test_a_client_that_leaves_before_the_answer_ends_the_generation(
    http: httpx.AsyncClient, registry: Registry
) -> None:
    reading = asyncio.create_task(http.post("/v1/completions", json=_body(prompt="leaving", max_tokens=CONTEXT - 100)))
    await eventually(lambda: _load(registry) == 1)
    reading.cancel()
    await asyncio.wait({reading})
    await eventually(lambda: _load(registry) == 0)
    metrics = (await http.get("/metrics")).text
    assert 'outrider_gateway_requests_total{route="/v1/completions",status="499"}' in metrics


@pytest.mark.usefixtures("shared_halted")
async def test_a_full_verifier_is_told_as_429_with_a_time_to_come_back(shared: Stack, registry: Registry) -> None:
    streams = [Streamed(shared.url, prompt=f"crowd {n}", max_tokens=CONTEXT - 100) for n in range(RUNNING + WAITING)]
    reading = [asyncio.create_task(stream.run()) for stream in streams[:RUNNING]]
    await eventually(lambda: all(stream.tokens for stream in streams[:RUNNING]))
    reading += [asyncio.create_task(stream.run()) for stream in streams[RUNNING:]]
    await eventually(lambda: _load(registry) == len(streams))
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as http:
        response = await http.post("/v1/completions", json=_body())
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)
    assert response.status_code == 429
    assert response.json()["error"]["type"] == "rate_limit_error"
    assert int(response.headers["retry-after"]) >= 1
    await eventually(lambda: _load(registry) == 0)


@pytest.mark.usefixtures("shared_halted")
async def test_the_openai_client_comes_back_when_it_is_told_to(shared: Stack, registry: Registry) -> None:
    streams = [Streamed(shared.url, prompt=f"crowd {n}", max_tokens=CONTEXT - 100) for n in range(RUNNING + WAITING)]
    reading = [asyncio.create_task(stream.run()) for stream in streams]
    await eventually(lambda: _load(registry) == len(streams))
    before = _refusals(shared)
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=9) as client:
        asking = asyncio.create_task(client.completions.with_raw_response.create(model=MODEL, prompt="p", max_tokens=2))
        await eventually(lambda: _refusals(shared) > before)
        for task in reading:
            task.cancel()
        assert (await asking).retries_taken > 0
    await asyncio.wait(reading)
    await eventually(lambda: _load(registry) == 0)


def _refusals(shared: Stack) -> float:
    told = httpx.get(f"{shared.url}/metrics", timeout=5).text
    return sum(map(float, re.findall(r'^outrider_gateway_requests_total{.*status="429"} (.*)$', told, re.MULTILINE)))


async def test_health_readiness_and_metrics_are_told(http: httpx.AsyncClient) -> None:
    assert (await http.get("/healthz")).json() == {"status": "alive"}
    assert (await http.get("/readyz")).json() == {"status": "ready", "models": [MODEL]}
    metrics = (await http.get("/metrics")).text
    assert "outrider_gateway_streams 0.0" in metrics
    assert "outrider_gateway_first_token_seconds_count" in metrics


async def test_a_trace_goes_on_from_the_client_to_the_services(shared: Stack, registry: Registry) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    traced = shared.add("gateway", port=0, instance="traced", trace_exporter="console")
    members = await registry.wait_for("gateway", lambda all_: any(m.instance == "traced" for m in all_), 240)
    port = next(member.status["http_port"] for member in members if member.instance == "traced")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        assert (await http.post("/v1/completions", json=_body(), headers=headers)).status_code == 200
    traced.stop()
    assert trace in traced.log.read_text()
    tokenizer = next(log for log in shared.logs.glob("tokenizer-*.log"))
    await eventually(lambda: trace in tokenizer.read_text())


async def _finish(registry: Registry, request_id: str) -> Finish | None:
    members = await registry.wait_for("verifier", bool, 240)
    call = VerifierStub(channel(members[0].address)).Follow(pb.FollowRequest(request_id=request_id))
    frames = [decode_frame(response.frame) async for response in call]
    return frames[-1].finish


def _load(registry: Registry) -> int:
    return sum(int(member.status["load"]) for member in registry.members("verifier"))
