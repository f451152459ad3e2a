"""Two gateways that require keys, used with OpenAI's client and `outrider keys`."""

from __future__ import annotations

import subprocess
import sys
import time
from secrets import token_hex
from typing import Any

import httpx
import msgspec
import openai
import pytest
from outrider.wire.tenants import Limits

from tests.gateway.stack import MODEL, Stack
from tests.gateway.tenants import TenantStore, client, complete, error_of, get

CLI = [sys.executable, "-c", "from outrider.cli.main import main; main()"]
PROXY = "203.0.113.7"
MESSAGES: Any = [{"role": "user", "content": "def parse("}]


async def test_the_openai_client_completes_chats_and_lists_models_with_a_key(
    urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key()
    async with client(urls[0], text) as asking:
        assert (await asking.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4)).choices
        assert [model.id async for model in asking.models.list()] == [MODEL]
    response = await get(f"{urls[0]}/v1/models", {"x-api-key": text})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("x-ratelimit")]


async def test_without_a_key_that_is_valid_now_everything_is_refused_alike(
    urls: list[str], tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key()
    _, expired = await tenant_store.key(expires=time.time() - 1)
    revoked, revoked_text = await tenant_store.key()
    await tenant_store.save(msgspec.structs.replace(revoked, revoked=time.time()))
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
        return httpx.get(f"{urls[0]}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=60).status_code

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


async def test_a_model_that_is_not_allowed_is_as_good_as_none(urls: list[str], tenant_store: TenantStore) -> None:
    _, text = await tenant_store.key(Limits(models=("other",)))
    async with client(urls[0], text) as asking:
        assert [model.id async for model in asking.models.list()] == []
        with pytest.raises(openai.NotFoundError, match="you may not use it"):
            await asking.models.retrieve(MODEL)
    with pytest.raises(openai.NotFoundError) as caught:
        await complete(urls[0], text)
    assert error_of(caught)["code"] == "model_not_found"


async def test_a_key_opens_from_its_networks_only_and_proxies_are_believed_where_they_are_trusted(
    urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(networks=("203.0.113.0/24",)))
    headers = {"authorization": f"Bearer {text}", "x-forwarded-for": f"198.51.100.1, {PROXY}"}
    answers = [await get(f"{url}/v1/models", headers) for url in urls]
    assert [answer.status_code for answer in answers] == [403, 200]
    assert answers[0].json()["error"]["code"] == "ip_not_allowed"
    assert "127.0.0.1" in answers[0].json()["error"]["message"]
    lying = headers | {"x-forwarded-for": f"{PROXY}, 198.51.100.1"}
    assert (await get(f"{urls[1]}/v1/models", lying)).status_code == 403
