"""How long the broker keeps clients that a gateway admitted, and what it does while no gateway answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import nats
import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.admission.credentials import Credentials
from outrider.gateway.admission.directory import Directory
from outrider.gateway.admission.memory_limits import MemoryStore
from outrider.gateway.api.nats.callout import Callout
from outrider.mesh.bus import Bus, Issuer, find_issuer
from outrider.mesh.tasks import Tasks
from outrider.wire.subjects import CALLOUT
from outrider.wire.tenants import new_key
from outrider_client import ConnectionFailedError
from outrider_client import nats as over_nats

from tests.broker import Broker
from tests.security.secured import joined, save_key
from tests.security.speaker import Speaker
from tests.users import guarded_broker, open_broker
from tests.waiting import eventually

LIFETIME_S = 1


@pytest.fixture
def users(tmp_path: Path) -> BusDirectory:
    return BusDirectory(tmp_path / "bus")


@pytest.fixture
async def broker(users: BusDirectory, tmp_path: Path) -> AsyncIterator[Broker]:
    made = guarded_broker(users, "--jetstream", "--store_dir", str(tmp_path / "store"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def gateway(broker: Broker, users: BusDirectory) -> AsyncIterator[Bus]:
    bus = await joined(broker, users, "gateway")
    yield bus
    await bus.close()


@pytest.fixture
async def callout(gateway: Bus, users: BusDirectory) -> Callout:
    return await admitting(gateway, users, Tasks())


async def admitting(gateway: Bus, users: BusDirectory, tasks: Tasks) -> Callout:
    """What answers the broker, for `LIFETIME_S`."""
    directory = Directory(gateway, stale_s=0)
    await directory.start()
    issuer = find_issuer(str(users.path))
    assert issuer is not None
    made = Callout(
        gateway, tasks, AccessControl(MemoryStore(gateway), Credentials(directory, None)), issuer, LIFETIME_S
    )
    await made.open()
    return made


async def test_a_connection_ends_and_a_valid_key_opens_the_next(
    broker: Broker, users: BusDirectory, callout: Callout
) -> None:
    key, text = new_key("acme", time.time())
    await save_key(broker, users, key)
    async with over_nats.AsyncClient(broker.url, api_key=text, timeout=2) as client:
        first = await client.connected()
        await eventually(lambda: first.is_closed, 20)
        second = await client.connected()
        assert second is not first
        assert second.is_connected
        await save_key(broker, users, msgspec.structs.replace(key, revoked=time.time()))
        await eventually(lambda: second.is_closed, 20)
        with pytest.raises(ConnectionFailedError, match="Authorization Violation"):
            await client.connected()


async def test_without_a_gateway_nobody_is_admitted_and_connections_stay_until_they_end(
    broker: Broker, users: BusDirectory, callout: Callout
) -> None:
    key, text = new_key("acme", time.time())
    await save_key(broker, users, key)
    speaker = await Speaker.join(broker.port, key=text)
    await callout.close()
    assert await speaker.may_subscribe("tok.acme.x")
    with pytest.raises(ConnectionRefusedError, match="Authorization Violation"):
        await Speaker.join(broker.port, key=text)
    assert "User Authentication Expired" in await asyncio.wait_for(speaker.last_words(), 20)
    await speaker.leave()
    proposer = await joined(broker, users, "proposer")
    assert proposer.connected
    await proposer.close()


async def test_a_question_that_is_none_costs_nothing_but_its_answer(users: BusDirectory, tmp_path: Path) -> None:
    broker, failures = open_broker(users, "--jetstream", "--store_dir", str(tmp_path / "store")), list[BaseException]()
    broker.start()
    gateway = await joined(broker, users, "gateway")
    await admitting(gateway, users, Tasks(failures.append))
    stranger = await nats.connect(broker.url)
    xkey = Issuer(users.seed("issuer")).xkey
    for headers in (None, {"Nats-Server-Xkey": "X"}, {"Nats-Server-Xkey": xkey}):
        await stranger.publish(CALLOUT, b"nonsense", reply="_INBOX.stranger", headers=headers)
    await stranger.flush()
    key, text = new_key("acme", time.time())
    await save_key(broker, users, key)
    await (await Speaker.join(broker.port, key=text)).leave()
    assert not failures
    for each in (stranger, gateway):
        await each.close()
    broker.kill()
