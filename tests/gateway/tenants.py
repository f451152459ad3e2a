"""Creates tenants and keys, and sends requests with a key."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import msgspec
import openai
import pytest
from outrider.gateway.admission.account import LimitLedger
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.subjects import LIMITS_BUCKET
from outrider.wire.tenants import Key, Limits, Tenant, key_entry, new_key, tenant_entry

from tests.gateway.stack import MODEL, Stack
from tests.waiting import eventually


class TenantStore:
    """Creates a tenant and its keys."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.tenant = f"t-{token_hex(4)}"

    async def key(
        self, limits: Limits | None = None, own: Limits | None = None, expires: float | None = None
    ) -> tuple[Key, str]:
        """A new key; ``limits`` are those of the tenant, ``own`` those of the key."""
        tenant = Tenant(name=self.tenant, created=time.time(), limits=limits or Limits())
        await self.bucket.put(tenant_entry(self.tenant), msgspec.json.encode(tenant))
        key, text = new_key(self.tenant, time.time(), limits=own, expires=expires)
        await self.save(key)
        return key, text

    async def save(self, key: Key) -> None:
        """Writes a key."""
        await self.bucket.put(key_entry(key.id), msgspec.json.encode(key))

    async def revoke(self, key: Key) -> None:
        """Revokes a key."""
        await self.save(msgspec.structs.replace(key, revoked=time.time()))

    async def disable(self) -> None:
        """Disables the tenant."""
        tenant = Tenant(name=self.tenant, created=0, disabled=time.time())
        await self.bucket.put(tenant_entry(self.tenant), msgspec.json.encode(tenant))


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


async def shared_answers(url: str) -> float:
    """Answers that a gateway gave to more than one request."""
    async with httpx.AsyncClient() as http:
        lines = (await http.get(f"{url}/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("outrider_gateway_shared_answers_total"))


async def wait_charged(shared: Stack, tenant: str, expected: int) -> None:
    """Returns when the gateways hold no unused tokens of the tenant, and it has used as many as expected."""
    bus = Bus()
    await bus.connect(shared.broker.url, "test", wait_s=10)
    bucket, counted = Bucket(bus, LIMITS_BUCKET), -1
    try:
        async with asyncio.timeout(60):
            while counted != expected:
                await asyncio.sleep(0.1)
                entry = await bucket.get(f"{tenant_entry(tenant)}.tokens_per_day")
                assert entry is not None
                ledger = msgspec.json.decode(entry.value, type=LimitLedger)
                counted = ledger.spent + sum(hold.units for hold in ledger.held.values())
    except TimeoutError:
        pytest.fail(f"{counted} tokens are charged and not {expected}")
    finally:
        await bus.close()


async def audit_lines(path: Path, count: int, **fields: str) -> list[dict[str, Any]]:
    """The lines of an audit log with these ``fields``, once there are ``count``."""

    def found() -> list[dict[str, Any]]:
        every = (json.loads(line) for line in path.read_text().splitlines()) if path.exists() else ()
        return [line for line in every if fields.items() <= line.items()]

    await eventually(lambda: len(found()) >= count)
    return found()
