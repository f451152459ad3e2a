"""A gateway admits clients at every server of a cluster whose connections are encrypted."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket
from outrider.mesh.security import trust_in
from outrider.wire.tenants import BUCKET, Tenant, key_entry, new_key, tenant_entry
from outrider_client import OutriderClientError
from outrider_client import nats as over_nats

from tests.certificates import Certified
from tests.cluster import Cluster, cluster, patiently
from tests.processes import running
from tests.waiting import eventually

pytestmark = pytest.mark.skipif("CLUSTER" not in os.environ, reason="takes half a minute: make cluster")


async def saved_key(servers: Cluster, ca: Path) -> str:
    """The text of a new key of a new tenant."""
    admin = await servers.joined("admin", trust=trust_in(ca))
    key, text = new_key("acme", time.time())
    bucket = Bucket(admin, BUCKET, timeout_s=1)
    await patiently(bucket.open)
    await bucket.put(tenant_entry("acme"), msgspec.json.encode(Tenant(name="acme", created=time.time())))
    await bucket.put(key_entry(key.id), msgspec.json.encode(key))
    await admin.close()
    return text


async def admitted(url: str, key: str, ca: Path) -> bool:
    try:
        async with over_nats.AsyncClient(url, api_key=key, ca=ca) as client:
            return (await client.subject_prefix()).startswith("tok.acme.")
    except OutriderClientError:
        return False


async def test_a_key_admits_at_every_server_also_when_that_of_the_gateway_is_dead(tmp_path: Path) -> None:
    certified = Certified(tmp_path / "authority")
    certified.issue("gateway")
    async with cluster(tmp_path, certified.issue("broker")) as servers:
        key = await saved_key(servers, certified.ca)
        settings: dict[str, object] = {"nats_credentials": servers.users.path, "auth": "keys", "nats_replicas": 3}
        settings |= {"port": hold_port(), "grpc_port": hold_port()} | certified.settings
        with running("gateway", tmp_path / "gateway.log", nats_url=servers.urls[0], **settings) as gateway:
            await asyncio.to_thread(gateway.wait_ready)
            assert all([await admitted(url, key, certified.ca) for url in servers.urls])
            servers.servers[0].kill()
            await eventually(lambda: "NATS is connected" in gateway.last_lines().partition("NATS is lost")[2])
            assert all([await admitted(url, key, certified.ca) for url in servers.urls[1:]])
