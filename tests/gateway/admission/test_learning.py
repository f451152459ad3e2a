"""Guesses from a tenant's earlier answers, and tenants and requests that want none."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.tenants import BUCKET, Limits

from tests.gateway.stack import MODEL, Stack
from tests.gateway.tenants import TenantStore

pytestmark = pytest.mark.timeout(300)  # waits for a mesh to start

PROMPT = [40, 41, 42]
OFF, NONE = Limits(learning=False), Limits()
PRIVATE = {"drafters": ["suffix"], "private": True}


async def foreign(url: str, key: str, **more: Any) -> int:
    """Steps whose guesses follow a token that is new in its sequence: they come from another answer."""
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 30, "temperature": 0, "ignore_eos": True} | more
    body |= {"coalesce": False, "return_drafts": True, "return_tokens": True}
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as client:
        answer = await client.post(f"{url}/v1/completions", json={"speculation": {"drafters": ["suffix"]}} | body)
    extra = answer.json()["outrider"]
    found = 0
    for draft in extra["drafts"]:
        before = [*PROMPT, *extra["tokens"][: draft["first_index"]]]
        found += bool(draft["tokens"]) and before[-1] not in before[:-1]
    return found


@pytest.mark.parametrize(
    ("tenant", "key", "asked", "learns"),
    [(NONE, NONE, {}, True), (OFF, NONE, {}, False), (NONE, OFF, {}, False), (NONE, NONE, PRIVATE, False)],
    ids=["learns", "tenant", "key", "request"],
)
async def test_an_answer_is_guessed_from_earlier_ones_unless_tenant_key_or_request_says_no(
    guessing: Stack, tenant: Limits, key: Limits, asked: dict[str, Any], learns: bool
) -> None:
    port = hold_port()
    gateway = guessing.add("gateway", port=port, auth="keys")
    bus = Bus()
    await bus.connect(guessing.broker.url, "test", wait_s=10)
    try:
        gateway.wait_ready()
        _, text = await TenantStore(Bucket(bus, BUCKET)).key(tenant, key)
        more = {"speculation": asked} if asked else {}
        counts = [await foreign(f"http://127.0.0.1:{port}", text, **more) for _ in range(4)]
        assert counts[0] == 0
        assert any(counts) == learns
    finally:
        await bus.close()
        gateway.stop()
