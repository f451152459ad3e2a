"""What gateways that require keys write to the audit log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import randrange
from secrets import token_hex

import grpc
import httpx
import openai
import pytest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.wire.tenants import Limits

from tests.gateway.tenants import TenantStore, audit_lines, complete, get


async def test_refusals_at_every_api_are_told_with_who_and_where_and_never_with_a_key(
    urls: list[str], keyed_grpc: str, audit_log: Path, tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key(Limits(requests_per_minute=1), Limits(networks=("127.0.0.1",)))
    wrong = f"sk-{token_hex(8)}-{text.split('-', 2)[2]}"
    own = f"127.77.{randrange(256)}.{randrange(1, 255)}"  # the minute of other tests' refusals is no matter
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(local_address=own), timeout=60) as http:
        answers = [await http.get(f"{urls[0]}/v1/models", headers={"x-api-key": each}) for each in (wrong, _unknown())]
    async with grpc.aio.insecure_channel(keyed_grpc) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await InferenceStub(channel).ListModels(pb.ListModelsRequest(), metadata=[("x-api-key", wrong)])
    (told,) = await audit_lines(audit_log, 1, address=own)
    assert (told["event"], told["door"]) == ("authentication_refused", "http")
    assert told["actor"] == f"key {wrong.split('-')[1]}"
    assert told["request"] == answers[0].headers["x-request-id"]
    assert await audit_lines(audit_log, 1, event="authentication_refused", door="grpc", address="127.0.0.1")
    with pytest.raises(openai.RateLimitError):
        await asyncio.gather(*(complete(urls[0], text) for _ in range(3)))
    (limited,) = await audit_lines(audit_log, 1, actor=f"key {key.id}")
    assert (limited["event"], limited["outcome"], limited["tenant"]) == ("limit_reached", "refused", key.tenant)
    assert text.split("-", 2)[2] not in str(told) + str(limited)


async def test_a_prompt_that_is_answered_again_and_again_is_told_of(
    urls: list[str], audit_log: Path, tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key()
    for _ in range(6):  # at least three of them in one minute
        await complete(urls[0], text, n=2, max_tokens=1)
    told = (await audit_lines(audit_log, 2, actor=f"key {key.id}"))[:2]
    subjects = [f"repeated_prompt of key {key.id}", f"repeated_prompt of tenant {key.tenant}"]
    assert [(line["event"], line["subject"]) for line in told] == [("abuse_suspected", each) for each in subjects]
    assert told[0]["reason"] == "6 in 60 s, more than 5"


async def test_a_wrong_network_is_told_with_the_tenant(
    urls: list[str], audit_log: Path, tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key(Limits(networks=("203.0.113.0/24",)))
    assert (await get(f"{urls[0]}/v1/models", {"x-api-key": text})).status_code == 403
    (line,) = await audit_lines(audit_log, 1, actor=f"key {key.id}")
    assert (line["event"], line["tenant"], line["address"]) == ("permission_refused", key.tenant, "127.0.0.1")


def _unknown() -> str:
    return f"sk-{token_hex(8)}-{token_hex(32)}"
