"""Clients that show API keys to the broker, and others that show something else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.cli.bus.seeds import public_key
from outrider.gateway.admission.directory import FRESH_S
from outrider.wire.tenants import Limits, new_key
from outrider_client import nats as over_nats

from tests.security.secured import Secured, make_key, save_key
from tests.security.speaker import Speaker

LONG_AGO = 1.0


async def test_a_key_admits_as_password_and_as_token(secured: Secured, keys: Mapping[str, str]) -> None:
    ways: list[dict[str, Any]] = [{"token": keys["acme"]}, {"user": "anybody", "password": keys["acme"]}]
    for shown in ways:
        client = await nats.connect(secured.broker.url, **shown)
        assert client.is_connected
        await client.close()


async def test_the_python_client_needs_the_key_only(secured: Secured, keys: Mapping[str, str]) -> None:
    for tenant, key in keys.items():
        async with over_nats.AsyncClient(secured.broker.url, api_key=key) as client:
            assert (await client.subject_prefix()).startswith(f"tok.{tenant}.")
            assert await client.models() == []


@pytest.mark.parametrize("shown", ["nothing", "no key", "an unknown key", "an expired key", "a revoked key"])
async def test_who_shows_no_valid_key_is_not_admitted(secured: Secured, shown: str) -> None:
    expired = await make_key(secured, "acme", expires=LONG_AGO)
    key, revoked = new_key("acme", time.time())
    await save_key(secured.broker, secured.users, msgspec.structs.replace(key, revoked=LONG_AGO))
    texts = {
        "no key": "password",
        "an unknown key": new_key("acme", time.time())[1],
        "an expired key": expired,
        "a revoked key": revoked,
    }
    with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
        await Speaker.join(secured.broker.port, key=texts.get(shown, ""))


async def test_a_revoked_key_admits_nobody_a_second_later(secured: Secured) -> None:
    key, text = new_key("acme", time.time())
    await save_key(secured.broker, secured.users, key)
    speaker = await Speaker.join(secured.broker.port, key=text)
    await save_key(secured.broker, secured.users, msgspec.structs.replace(key, revoked=time.time()))
    await asyncio.sleep(FRESH_S)
    with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
        await Speaker.join(secured.broker.port, key=text)
    assert await speaker.may_subscribe("tok.acme.x")
    await speaker.leave()


async def test_a_key_admits_from_its_own_networks_only(secured: Secured) -> None:
    near, far = (new_key("acme", time.time(), limits=Limits(networks=(each,))) for each in ("127.0.0.0/8", "::/0"))
    for key, _ in (near, far):
        await save_key(secured.broker, secured.users, key)
    await (await Speaker.join(secured.broker.port, key=near[1])).leave()
    with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
        await Speaker.join(secured.broker.port, key=far[1])


async def test_the_name_of_a_service_admits_nobody_without_its_seed(secured: Secured, tmp_path: Path) -> None:
    foreign = BusDirectory(tmp_path / "bus")
    foreign.write()
    for seed in (foreign.seed("gateway"), foreign.client):
        with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
            await Speaker.join(secured.broker.port, seed.read_bytes())
    claimed = public_key(secured.users.seed("gateway"))
    with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
        await Speaker.join(secured.broker.port, foreign.seed("gateway").read_bytes(), claimed=claimed)


async def test_a_login_that_was_overheard_admits_nobody_again(secured: Secured) -> None:
    seed = secured.users.seed("gateway").read_bytes()
    overheard = await Speaker.join(secured.broker.port, seed)
    with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
        await Speaker.join(secured.broker.port, seed, signed=overheard.nonce)
    await overheard.leave()


async def test_a_connection_with_too_many_subscriptions_is_ended(secured: Secured, keys: Mapping[str, str]) -> None:
    speaker = await Speaker.join(secured.broker.port, key=keys["acme"])
    assert await speaker.subscribe("tok.acme.x", 1 << 16) == []
    assert "maximum subscriptions exceeded" in (await speaker.subscribe("tok.acme.x", 1))[0]
    await speaker.leave()
