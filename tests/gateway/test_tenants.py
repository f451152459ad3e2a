"""Two gateways that ask for keys, as clients and operators use them: with OpenAI's client and `outrider keys`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from secrets import token_hex
from typing import Any

import httpx
import msgspec
import openai
import pytest
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.tenants import BUCKET, Key, Limits, Tenant, key_entry, new_key, tenant_entry

from tests.broker import free_port
from tests.gateway.stack import CONTEXT, MODEL, Stack, Streamed
from tests.waiting import eventually

CLI = [sys.executable, "-c", "from outrider.cli.main import main; main()"]
PROXY = "203.0.113.7"
MESSAGES: Any = [{"role": "user", "content": "def parse("}]


@pytest.fixture(scope="module")
def urls(shared: Stack) -> Iterator[list[str]]:
    """Two gateways; the second trusts this machine as a proxy."""
    ports = [free_port(), free_port()]
    gateways = [
        shared.add("gateway", port=ports[0], auth="keys"),
        shared.add("gateway", port=ports[1], auth="keys", trusted_proxies="127.0.0.0/8"),
    ]
    for gateway in gateways:
        gateway.wait_ready()
    yield [f"http://127.0.0.1:{port}" for port in ports]
    for gateway in gateways:
        gateway.stop()


class Desk:
    """Where tenants are put on."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.tenant = f"t-{token_hex(4)}"

    async def key(
        self, limits: Limits | None = None, own: Limits | None = None, expires: float | None = None
    ) -> tuple[Key, str]:
        """A key of a tenant with limits; its own stand beside them."""
        tenant = Tenant(name=self.tenant, created=time.time(), limits=limits or Limits())
        await self._bucket.put(tenant_entry(self.tenant), msgspec.json.encode(tenant))
        key, text = new_key(self.tenant, time.time(), limits=own, expires=expires)
        await self.save(key)
        return key, text

    async def save(self, key: Key) -> None:
        """Writes a key."""
        await self._bucket.put(key_entry(key.id), msgspec.json.encode(key))


@pytest.fixture
async def desk(shared: Stack, urls: list[str]) -> AsyncIterator[Desk]:
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    yield Desk(Bucket(bus, BUCKET))
    await bus.close()


def client(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


async def complete(url: str, key: str, **more: Any) -> openai.types.Completion:
    asked: Any = {"model": MODEL, "prompt": "def parse(", "max_tokens": 4, "seed": 3} | more
    async with client(url, key) as asking:
        return await asking.completions.create(**asked)


async def headers_of(url: str, key: str, **more: Any) -> dict[str, str]:
    async with client(url, key) as asking:
        asked: Any = {"model": MODEL, "prompt": "def parse(", "max_tokens": 4} | more
        return dict((await asking.completions.with_raw_response.create(**asked)).headers)


async def get(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as asking:
        return await asking.get(url, headers=headers)


def error_of(caught: pytest.ExceptionInfo[openai.APIStatusError]) -> dict[str, Any]:
    assert isinstance(caught.value.body, dict)
    return caught.value.body


async def test_the_openai_client_completes_chats_and_lists_models_with_a_key(urls: list[str], desk: Desk) -> None:
    _, text = await desk.key()
    async with client(urls[0], text) as asking:
        assert (await asking.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4)).choices
        assert [model.id async for model in asking.models.list()] == [MODEL]
    response = await get(f"{urls[0]}/v1/models", {"x-api-key": text})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("x-ratelimit")]


async def test_without_a_key_that_is_valid_now_everything_is_refused_alike(urls: list[str], desk: Desk) -> None:
    key, text = await desk.key()
    _, expired = await desk.key(expires=time.time() - 1)
    revoked, revoked_text = await desk.key()
    await desk.save(msgspec.structs.replace(revoked, revoked=time.time()))
    foreign = f"sk-{key.id}-{expired.split('-', 2)[2]}"
    for wrong in ("none", foreign, f"sk-{'0' * 16}-{text.split('-', 2)[2]}", expired, revoked_text):
        with pytest.raises(openai.AuthenticationError) as caught:
            await complete(urls[0], wrong)
        body = error_of(caught)
        assert (body["type"], body["code"]) == ("invalid_request_error", "invalid_api_key")
        assert wrong == "none" or wrong not in body["message"]
    bare = await get(f"{urls[0]}/v1/models")
    assert (bare.status_code, bare.json()["error"]["code"]) == (401, "invalid_api_key")
    assert bare.headers["www-authenticate"] == "Bearer"
    assert [(await get(urls[0] + path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3


def test_an_operator_makes_rotates_and_revokes_keys_while_gateways_run(shared: Stack, urls: list[str]) -> None:
    name = f"t-{token_hex(4)}"

    def outrider(*arguments: str) -> str:
        command = [*CLI, *arguments, f"--nats-url={shared.broker.url}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    def status(key: str) -> int:
        return httpx.get(f"{urls[0]}/v1/models", headers={"authorization": f"Bearer {key}"}).status_code

    def becomes(key: str, wanted: int) -> bool:
        deadline = time.monotonic() + 30
        while status(key) != wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        return status(key) == wanted

    outrider("tenants", "set", name, "--limit=requests_per_minute=1000")
    first = outrider("keys", "create", "--tenant", name, "--label", "ci")
    assert status(first) == 200
    second = outrider("keys", "rotate", first.split("-")[1], "--grace", "0s")
    assert becomes(first, 401)
    assert status(second) == 200
    outrider("keys", "revoke", second.split("-")[1])
    assert becomes(second, 401)
    listed = outrider("keys", "list", "--tenant", name)
    assert [line.split()[3] for line in listed.splitlines()[1:]] == ["expired", "revoked"]


async def test_requests_a_minute_are_counted_over_all_gateways(urls: list[str], desk: Desk) -> None:
    _, text = await desk.key(Limits(requests_per_minute=2))
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
    assert f"tenant {desk.tenant} has reached its limit of 2 requests per minute" in error["message"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert 1 <= int(headers["retry-after"]) <= 60


async def test_tokens_are_reserved_for_the_longest_answer_and_settled_by_the_true_one(
    urls: list[str], desk: Desk
) -> None:
    _, text = await desk.key(Limits(tokens_per_day=200))
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


async def test_a_request_that_no_verifier_takes_costs_no_tokens(urls: list[str], desk: Desk) -> None:
    _, text = await desk.key(Limits(tokens_per_day=200))
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="outside the vocabulary"):
            await complete(urls[0], text, prompt=[10**6], max_tokens=150)
    assert int((await headers_of(urls[0], text, prompt=[5], max_tokens=1))["x-ratelimit-remaining-tokens"]) == 198


async def test_a_key_has_limits_beside_its_tenants(urls: list[str], desk: Desk) -> None:
    _, narrow = await desk.key(Limits(tokens_per_day=10_000), own=Limits(tokens_per_day=60))
    _, wide = await desk.key(Limits(tokens_per_day=10_000))
    assert (await headers_of(urls[0], narrow))["x-ratelimit-limit-tokens"] == "60"
    assert (await headers_of(urls[0], wide))["x-ratelimit-limit-tokens"] == "10000"


async def test_a_stream_comes_back_when_its_client_hangs_up(urls: list[str], desk: Desk) -> None:
    _, text = await desk.key(Limits(concurrent_streams=1))
    stream = Streamed(urls[0], prompt="leaving", max_tokens=CONTEXT - 100)
    stream.headers["authorization"] = f"Bearer {text}"
    reading = asyncio.create_task(stream.run())
    await eventually(lambda: stream.tokens)
    for url in urls:
        with pytest.raises(openai.RateLimitError, match="limit of 1 concurrent streams"):
            await complete(url, text)
    reading.cancel()
    await asyncio.wait({reading})
    async with asyncio.timeout(30):
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
        (Limits(max_context_tokens=3), {}, "prompt", "maximum context length of 3 tokens"),
        (Limits(tokens_per_minute=50), {"max_tokens": 60}, "max_tokens", "50 tokens per minute: lower max_tokens"),
        (Limits(concurrent_streams=2), {"n": 3}, "n", "more than the 2 concurrent streams"),
    ],
)
async def test_what_can_never_be_granted_is_a_bad_request(
    urls: list[str], desk: Desk, limits: Limits, more: dict[str, Any], param: str, message: str
) -> None:
    _, text = await desk.key(limits)
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        await complete(urls[0], text, **more)
    assert error_of(caught)["param"] == param


async def test_an_answer_without_a_length_is_as_long_as_its_caller_may_have_it(urls: list[str], desk: Desk) -> None:
    _, text = await desk.key(Limits(max_output_tokens=9), own=Limits(max_output_tokens=7))
    async with client(urls[0], text) as asking:
        answer = await asking.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


async def test_a_model_that_is_not_allowed_is_as_good_as_none(urls: list[str], desk: Desk) -> None:
    _, text = await desk.key(Limits(models=("other",)))
    async with client(urls[0], text) as asking:
        assert [model.id async for model in asking.models.list()] == []
        with pytest.raises(openai.NotFoundError, match="you may not use it"):
            await asking.models.retrieve(MODEL)
    with pytest.raises(openai.NotFoundError) as caught:
        await complete(urls[0], text)
    assert error_of(caught)["code"] == "model_not_found"


async def test_a_key_opens_from_its_networks_only_and_proxies_are_believed_where_they_are_trusted(
    urls: list[str], desk: Desk
) -> None:
    _, text = await desk.key(Limits(networks=("203.0.113.0/24",)))
    headers = {"authorization": f"Bearer {text}", "x-forwarded-for": f"198.51.100.1, {PROXY}"}
    answers = [await get(f"{url}/v1/models", headers) for url in urls]
    assert [answer.status_code for answer in answers] == [403, 200]
    assert answers[0].json()["error"]["code"] == "ip_not_allowed"
    assert "127.0.0.1" in answers[0].json()["error"]["message"]
    lying = headers | {"x-forwarded-for": f"{PROXY}, 198.51.100.1"}
    assert (await get(f"{urls[1]}/v1/models", lying)).status_code == 403
