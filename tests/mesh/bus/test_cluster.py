"""Three servers of NATS, of which one dies."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus, Journal, JournalConfig
from outrider.mesh.errors import Unavailable
from structlog.testing import capture_logs

from tests.broker import Broker
from tests.cluster import cluster, leader, patiently
from tests.waiting import eventually

RECORDS = JournalConfig("outrider-requests", "ask.*.*.*", 3600, 1 << 20, last_only=True)


async def opened(bus: Bus) -> tuple[Journal, Bucket]:
    journal, bucket = Journal(bus, RECORDS, timeout_s=1), Bucket(bus, "outrider-tenants", timeout_s=1)
    await patiently(journal.open)
    await patiently(bucket.open)
    return journal, bucket


async def test_what_one_server_stored_is_raised_to_three_and_outlives_the_server_that_led_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        alone, gateway, wide = [await servers.joined("gateway", replicas=replicas) for replicas in (1, 3, 5)]
        journal, bucket = await opened(alone)
        await journal.add("ask.t.early.0-1", b"early")
        with capture_logs() as logs:
            journal, bucket = await opened(gateway)
            await opened(wide)
            with pytest.raises(Unavailable, match="nats_replicas"):
                await Bucket(wide, "outrider-bills").open()
        assert {line["stream"] for line in logs if line["event"] == "a stream has more replicas"} == {
            "outrider-requests",
            "KV_outrider-tenants",
        }
        kept = [line["why"] for line in logs if line["event"] == "a stream keeps fewer replicas"]
        assert len(kept) == 2
        assert all(why.startswith("nats_replicas = 5 needs") for why in kept)
        revision = await bucket.put("tenant.t", b"stored")
        victim = await leader(gateway, "outrider-requests")
        await leader(gateway, "KV_outrider-tenants")
        listener = await servers.joined("gateway", servers.urls[victim])
        heard: list[bytes] = []
        await listener.subscribe("outrider.streams.taken", lambda message: heard.append(message.data))
        servers.servers[victim].kill()
        await patiently(lambda: journal.add("ask.t.late.0-1", b"late"))
        await patiently(lambda: bucket.swap("tenant.t", b"swapped", revision))
        await eventually(lambda: listener.connected and gateway.connected)
        gateway.publish("outrider.streams.taken", b"taken")
        await eventually(lambda: heard == [b"taken"])
        await patiently(lambda: journal.read("ask.t.*.*"))
        assert dict(await journal.read("ask.t.*.*")) == {"ask.t.early.0-1": b"early", "ask.t.late.0-1": b"late"}
        for bus in (alone, gateway, wide, listener):
            await bus.close()


async def test_a_server_that_no_url_names_is_shown_the_password_of_the_one_that_a_url_names(tmp_path: Path) -> None:
    password = tmp_path / "password.conf"
    password.write_text("authorization: {user: me, password: secret}")
    route = hold_port()
    shared = ("--config", str(password), "--cluster_name", "pair", "--routes", f"nats://127.0.0.1:{route}")
    one, other = (Broker(*shared, "--cluster", f"nats://127.0.0.1:{port}") for port in (route, hold_port()))
    for server in (one, other):
        server.start()
    await eventually(lambda: f":{other.port}" in greeting(one))
    changes: list[bool] = []
    received: list[bytes] = []
    bus = Bus()
    bus.on_change(changes.append)
    await bus.connect(one.url.replace("nats://", "nats://me:secret@"), "test", 20)
    await bus.subscribe("here", lambda message: received.append(message.data))
    one.kill()
    await eventually(lambda: changes == [True, False, True])
    bus.publish("here", b"still")
    await eventually(lambda: received == [b"still"])
    await bus.close()
    other.kill()


def greeting(server: Broker) -> str:
    """What a server says first: the servers of its cluster, among others."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        return connection.makefile("rb").readline().decode()
