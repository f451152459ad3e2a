"""Limits in headers and refusals, over two gateways that share the limits."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import httpx
import openai
import pytest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.wire.tenants import Limits

from tests.gateway.stack import CONTEXT, MODEL, Stack, Streamed
from tests.gateway.tenants import TenantStore, client, complete, error_of, headers_of, wait_charged
from tests.waiting import eventually

MESSAGES: Any = [{"role": "user", "content": "def parse("}]


async def test_requests_a_minute_are_counted_over_all_gateways(urls: list[str], tenant_store: TenantStore) -> None:
    _, text = await tenant_store.key(Limits(requests_per_minute=2))
    responses = []
    for number in range(5):  # a minute may end in between, but not twice
        responses.append(
            await asyncio.to_thread(
                httpx.post,
                f"{urls[number % 2]}/v1/completions",
                json={"model": MODEL, "prompt": "a", "max_tokens": 1},
                headers={"authorization": f"Bearer {text}"},
                timeout=60,
            )
        )
    refused = [response for response in responses if response.status_code == 429]
    granted = [response for response in responses if response.status_code == 200]
    assert len(refused) + len(granted) == 5
    assert 1 <= len(refused) <= 3
    assert [granted[0].headers[f"x-ratelimit-{name}-requests"] for name in ("limit", "remaining")] == ["2", "1"]
    error, headers = refused[0].json()["error"], refused[0].headers
    assert f"tenant {tenant_store.tenant} has reached its limit of 2 requests per minute" in error["message"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert 1 <= int(headers["retry-after"]) <= 60


async def test_tokens_are_reserved_for_the_longest_answer_and_settled_by_the_true_one(
    urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(tokens_per_day=200))
    usage = (await complete(urls[0], text)).usage
    assert usage is not None
    before = await headers_of(urls[0], text, max_tokens=100)
    assert before["x-ratelimit-limit-tokens"] == "200"
    assert int(before["x-ratelimit-remaining-tokens"]) == 200 - usage.total_tokens - usage.prompt_tokens - 100
    async with client(urls[0], text) as asking:
        stream = await asking.completions.create(model=MODEL, prompt="def parse(", max_tokens=2, stream=True)
        assert [chunk async for chunk in stream]
    with pytest.raises(openai.RateLimitError, match="tokens per day") as caught:
        await complete(urls[1], text, max_tokens=180)
    assert caught.value.response.headers["x-ratelimit-remaining-tokens"] != "0"


async def test_a_request_that_no_verifier_takes_costs_no_tokens(urls: list[str], tenant_store: TenantStore) -> None:
    _, text = await tenant_store.key(Limits(tokens_per_day=200))
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="outside the vocabulary"):
            await complete(urls[0], text, prompt=[10**6], max_tokens=150)
    assert int((await headers_of(urls[0], text, prompt=[5], max_tokens=1))["x-ratelimit-remaining-tokens"]) == 198


async def test_a_key_has_limits_beside_its_tenants(urls: list[str], tenant_store: TenantStore) -> None:
    _, narrow = await tenant_store.key(Limits(tokens_per_day=10_000), own=Limits(tokens_per_day=60))
    _, wide = await tenant_store.key(Limits(tokens_per_day=10_000))
    assert (await headers_of(urls[0], narrow))["x-ratelimit-limit-tokens"] == "60"
    assert (await headers_of(urls[0], wide))["x-ratelimit-limit-tokens"] == "10000"


@pytest.mark.usefixtures("shared_halted")
async def test_a_stream_comes_back_when_its_client_hangs_up(urls: list[str], tenant_store: TenantStore) -> None:
    _, text = await tenant_store.key(Limits(concurrent_streams=1))
    stream = Streamed(urls[0], prompt="leaving", max_tokens=CONTEXT - 100)
    stream.headers["authorization"] = f"Bearer {text}"
    reading = asyncio.create_task(stream.run())
    await eventually(lambda: stream.tokens)
    for url in urls:
        with pytest.raises(openai.RateLimitError, match="concurrent streams"):
            await complete(url, text)
    reading.cancel()
    await asyncio.wait({reading})
    async with asyncio.timeout(60):
        while not await _served(urls[1], text):
            await asyncio.sleep(0.1)


async def _served(url: str, key: str) -> bool:
    try:
        await complete(url, key)
    except openai.RateLimitError:
        return False
    return True


@pytest.mark.parametrize(
    ("limits", "more", "param", "message"),
    [
        (Limits(max_output_tokens=8), {"max_tokens": 9}, "max_tokens", "9 is more than"),
        (Limits(max_context_tokens=3), {}, "prompt", "maximum context length is 3 tokens"),
        (Limits(tokens_per_minute=50), {"max_tokens": 60}, "max_tokens", "50 tokens per minute: lower max_tokens"),
        (Limits(concurrent_streams=2), {"n": 3}, "n", "more than the 2 concurrent streams"),
    ],
)
async def test_what_can_never_be_granted_is_a_bad_request(
    urls: list[str], tenant_store: TenantStore, limits: Limits, more: dict[str, Any], param: str, message: str
) -> None:
    _, text = await tenant_store.key(limits)
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        await complete(urls[0], text, **more)
    assert error_of(caught)["param"] == param


async def test_an_answer_without_a_length_is_as_long_as_its_caller_may_have_it(
    urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(max_output_tokens=9), own=Limits(max_output_tokens=7))
    async with client(urls[0], text) as asking:
        answer = await asking.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


async def put_prompt(url: str, key: str, prompt: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as http:
        headers = {"authorization": f"Bearer {key}"}
        return await http.put(f"{url}/v1/prompts/limited", json={"prompt": prompt}, headers=headers)


async def test_a_named_prompt_counts_as_a_request_and_its_tokens_as_a_prompt_of_one(
    urls: list[str], shared: Stack, tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(requests_per_minute=3, tokens_per_day=50))
    told = (await put_prompt(urls[0], text, "a long prompt " * 100)).json()["error"]
    assert "the limit of tenant" in told["message"]
    assert told["message"].endswith("is 50 tokens per day")
    assert (await put_prompt(urls[0], text, "short")).status_code == 200
    async with httpx.AsyncClient(timeout=60) as http:
        told = (await http.post(f"{shared.url}/v1/tokenize", json={"prompt": "short"})).json()
    await wait_charged(shared, tenant_store.tenant, told["count"])
    statuses = [(await put_prompt(urls[number % 2], text, "short")).status_code for number in range(5)]
    assert set(statuses) <= {200, 429}  # a minute may end in between, but not twice
    assert statuses.count(429) >= 1


async def test_encoding_counts_as_a_request_at_every_api(
    urls: list[str], keyed_grpc: str, tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(requests_per_minute=1))
    headers = {"authorization": f"Bearer {text}"}
    refused = 0
    async with httpx.AsyncClient(timeout=60) as http, grpc.aio.insecure_channel(keyed_grpc) as channel:
        bodies: dict[str, Any] = {"tokenize": {"prompt": "a"}, "detokenize": {"tokens": [1]}}
        for path in ("tokenize", "v1/tokenize", "detokenize", "v1/detokenize"):
            body = bodies[path.removeprefix("v1/")]
            refused += (await http.post(f"{urls[0]}/{path}", json=body, headers=headers)).status_code == 429
        for call in (
            InferenceStub(channel).Tokenize(pb.TokenizeRequest(text="a"), metadata=list(headers.items())),
            InferenceStub(channel).Detokenize(pb.DetokenizeRequest(tokens=[1]), metadata=list(headers.items())),
        ):
            try:
                await call
            except grpc.aio.AioRpcError as error:
                refused += error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused >= 4  # a minute may end in between
