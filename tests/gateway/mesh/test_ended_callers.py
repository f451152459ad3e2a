"""Keys, tokens and tenants that end while their requests run: the requests end at every API, and are charged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import nats
import openai
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.registry import Registry
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import SamplingParams
from outrider.wire.frames import Finish, Frame, decode_frame
from outrider.wire.tenants import Limits

from tests.gateway.issuer import AUDIENCE, LocalIssuer
from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL, Stack
from tests.gateway.streaming import finish
from tests.gateway.tenants import TenantStore, audit_lines, client, complete, shared_answers, wait_charged
from tests.latch import FEW, Latch
from tests.waiting import eventually

LENGTH = 60
PROMPT = "def f("
LEFT_S = 4.0
"""Seconds that a token is still valid when a stream begins."""


@pytest.fixture(scope="module")
def issuer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    made.add_key("key")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def token_url(shared: Stack, issuer: LocalIssuer) -> Iterator[str]:
    """A gateway that takes tokens."""
    port, issuers = hold_port(), json.dumps([{"issuer": issuer.url, "audience": AUDIENCE}])
    gateway = shared.add("gateway", port=port, auth="keys", issuers=issuers, nats_door="false")
    gateway.wait_ready()
    yield f"http://127.0.0.1:{port}"
    gateway.stop()


@pytest.fixture
async def stub(keyed_grpc: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(keyed_grpc) as channel:
        yield InferenceStub(channel)


async def _prompt_tokens(url: str, key: str) -> int:
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as http:
        return len((await http.post(f"{url}/tokenize", json={"prompt": PROMPT})).json()["tokens"])


async def test_a_revoked_key_ends_its_streams_over_http_and_grpc_and_what_came_is_charged(
    shared: Stack,
    shared_halted: Latch,
    urls: list[str],
    stub: Any,
    audit_log: Path,
    tenant_store: TenantStore,
    registry: Registry,
) -> None:
    _, other = await tenant_store.key(Limits(tokens_per_day=100_000))
    key, text = await tenant_store.key(Limits(tokens_per_day=100_000))
    stream = RawStream(urls[0], text)
    reading = asyncio.create_task(stream.begin(max_tokens=LENGTH, return_tokens=True))
    asked = pb.GenerateRequest(
        model=MODEL,
        text=PROMPT,
        sampling=SamplingParams(seed=8, max_tokens=LENGTH, ignore_eos=True),
        return_tokens=True,
    )
    call = stub.Generate(asked, metadata=(("authorization", f"Bearer {text}"),))
    request = dict(await call.initial_metadata())["x-request-id"]
    had = 0
    while had < FEW:
        had += len((await call.read()).tokens)
    await eventually(lambda: len(stream.events) == FEW)

    await tenant_store.revoke(key)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert caught.value.details() == f"the API key sk-{key.id}-... is revoked"
    await reading
    error, done = stream.events[FEW:]
    assert (error.json["error"]["code"], done.data) == ("invalid_api_key", b"[DONE]")
    assert error.json["error"]["message"] == caught.value.details()
    assert [await finish(registry, each) for each in (request, stream.request)] == [Finish.CANCELLED] * 2
    told = await audit_lines(audit_log, 2, actor=f"key {key.id}", event="stream_revoked")
    assert {line["request"] for line in told} == {request, stream.request}
    await wait_charged(shared, tenant_store.tenant, 2 * (await _prompt_tokens(urls[0], other) + FEW))


async def test_a_disabled_tenant_gets_no_further_frames_over_nats(
    shared: Stack, shared_halted: Latch, urls: list[str], tenant_store: TenantStore, registry: Registry
) -> None:
    _, text = await tenant_store.key()
    reader = await nats.connect(shared.broker.url)
    frames: list[Frame] = []

    async def take(message: Any) -> None:
        frames.append(decode_frame(message.data))

    await reader.subscribe(f"tok.{tenant_store.tenant}.*", cb=take)
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": LENGTH, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {text}"}
    answer = await reader.request("outrider.v1.generate", json.dumps(body).encode(), timeout=30, headers=headers)
    await eventually(lambda: sum(len(frame.tokens) for frame in frames) == FEW)
    await tenant_store.disable()
    await eventually(lambda: any(frame.error for frame in frames))
    assert {frame.error for frame in frames if frame.error} == {f"the tenant {tenant_store.tenant} is disabled"}
    assert await finish(registry, json.loads(answer.data)["request_id"]) is Finish.CANCELLED
    await reader.close()


async def test_a_resumed_stream_ends_with_the_token_that_resumed_it_and_a_valid_key_reads_the_rest(
    shared_halted: Latch, urls: list[str], token_url: str, issuer: LocalIssuer, tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key()
    begun = await RawStream(urls[0], text).begin(enough=FEW, stay=True, max_tokens=LENGTH, return_tokens=True)
    token = issuer.token("key", tenant=tenant_store.tenant, **issuer.ends_in(LEFT_S))
    resumed = await RawStream(token_url, token).resume(begun.request, begun.events[0].id)
    error = resumed.events[-2]
    assert resumed.events[:-2] == begun.events[1:]
    assert error.json["error"] | {"message": ""} == {
        "message": "",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
    assert (error.json["error"]["message"], error.id) == ("the token has expired", begun.last)
    shared_halted.lift()
    rest = await RawStream(token_url, text).resume(begun.request, error.id)
    assert len(begun.events + rest.events) == LENGTH + 1


async def test_answers_that_are_no_streams_end_too_and_a_background_response_waits_for_a_valid_key(
    shared_halted: Latch, urls: list[str], tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key()
    _, other = await tenant_store.key()
    whole = asyncio.create_task(complete(urls[0], text, max_tokens=LENGTH, extra_body={"ignore_eos": True}))
    asked: Any = {"model": MODEL, "input": "a", "max_output_tokens": LENGTH, "extra_body": {"ignore_eos": True}}
    async with client(urls[0], text) as one, client(urls[0], other) as two:
        made = await one.responses.create(**asked, background=True)
        await tenant_store.revoke(key)
        with pytest.raises(openai.AuthenticationError, match="is revoked"):
            await whole
        with pytest.raises(openai.AuthenticationError, match="is revoked"):
            await one.responses.retrieve(made.id)
        shared_halted.lift()
        while (response := await two.responses.retrieve(made.id)).status in ("queued", "in_progress"):
            await asyncio.sleep(0.1)
    assert response.status == "incomplete"
    assert response.usage is not None
    assert response.usage.output_tokens == LENGTH


async def test_a_reader_who_shares_an_answer_with_a_revoked_key_reads_on(
    shared_halted: Latch, urls: list[str], tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key()
    _, other = await tenant_store.key()
    before = await shared_answers(urls[0])
    ended, going_on = RawStream(urls[0], text), RawStream(urls[0], other)
    first = asyncio.create_task(ended.begin(max_tokens=LENGTH, return_tokens=True))
    await eventually(lambda: len(ended.events) == FEW)
    second = asyncio.create_task(going_on.begin(max_tokens=LENGTH, return_tokens=True))
    await eventually(lambda: len(going_on.events) == FEW)
    assert await shared_answers(urls[0]) == before + 1
    await tenant_store.revoke(key)
    await first
    assert ended.events[-2].json["error"]["code"] == "invalid_api_key"
    shared_halted.lift()
    await second
    assert len(going_on.events) == LENGTH + 1
