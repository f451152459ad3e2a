"""A mesh with API keys and tenants with limits, for measurements of limits and fairness."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from outrider.loadtest.meshes.site import Site
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus
from outrider.wire.tenants import BUCKET, Limits, Tenant, key_entry, new_key, tenant_entry


async def start(site: Site, gateways: Sequence[str], **verifier: object) -> dict[str, str]:
    """Starts a tokenizer, a verifier with settings ``verifier`` and ``gateways`` by name; returns each gateway's URL.

    Without a ``model`` among the settings, it is the shipped target.
    """
    settings = {"model": "pocket"} | verifier
    await site.start("tokenizer", "tokenizer", model=settings["model"])
    await site.start("verifier", "verifier", **settings)
    ports = {name: hold_port() for name in gateways}
    for name, port in ports.items():
        await site.start("gateway", name, port=port, auth="keys", nats_door="false")
    return {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}


async def store_tenants(url: str, limits: dict[str, Limits]) -> dict[str, str]:
    """Stores tenants with ``limits`` at the NATS server ``url``; returns a key of each."""
    bus = Bus()
    await bus.connect(url, "loadtest", wait_s=10)
    bucket, keys = Bucket(bus, BUCKET), {}
    await bucket.open()
    for name, limit in limits.items():
        tenant, (key, keys[name]) = Tenant(name=name, created=time.time(), limits=limit), new_key(name, time.time())
        await bucket.put(tenant_entry(name), msgspec.json.encode(tenant))
        await bucket.put(key_entry(key.id), msgspec.json.encode(key))
    await bus.close()
    return keys
