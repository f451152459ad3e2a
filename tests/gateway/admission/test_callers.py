"""Callers: their addresses, their keys, and keys while the store of keys is away."""

from __future__ import annotations

import asyncio
import time
from ipaddress import ip_address, ip_network
from pathlib import Path

import msgspec
import pytest
from outrider.gateway.admission.access_control import client_address
from outrider.gateway.admission.caller import Caller, caller_with_key
from outrider.gateway.admission.directory import FRESH_S, Directory
from outrider.gateway.admission.reservation import duration
from outrider.gateway.request.generation import Generation
from outrider.gateway.request.intake import effective_priority
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.config import load
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.wire.sampling import SamplingParams
from outrider.wire.tenants import BUCKET, Limits, Tenant, key_entry, new_key

from tests.broker import Broker

TRUSTED = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.7", [], "203.0.113.7"),
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),
        ("10.1.2.3", [], "10.1.2.3"),
        ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["192.0.2.9, 198.51.100.1, 10.9.9.9"], "198.51.100.1"),
        ("10.1.2.3", ["192.0.2.9", "198.51.100.1"], "198.51.100.1"),
        ("fd00::1", ["2001:db8::5"], "2001:db8::5"),
        ("::ffff:10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ("10.1.2.3", ["198.51.100.1, unknown"], None),
        ("", [], None),
    ],
)
def test_proxies_are_believed_as_far_as_they_are_trusted(peer: str, forwarded: list[str], address: str | None) -> None:
    assert client_address(peer, forwarded, TRUSTED) == (ip_address(address) if address else None)


def test_a_trusted_proxy_that_is_no_network_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="trusted_proxies: 'nowhere'"):
        load(GatewaySettings, "gateway", flags={"trusted_proxies": "10.0.0.0/8,nowhere"})


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0ms"), (0.02, "20ms"), (1, "1s"), (1.5, "1.5s"), (59.9999, "1m0s"), (360, "6m0s"), (86399, "23h59m59s")],
)
def test_durations_are_written_as_openai_writes_them(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_keys_own_priority_and_weight_go_over_its_tenants() -> None:
    tenant = Tenant(name="acme", created=0, limits=Limits(priority=3, weight=2.0))
    plain, _ = new_key("acme", 0)
    urgent, _ = new_key("acme", 0, limits=Limits(priority=0))
    assert (caller_with_key(tenant, plain).priority, caller_with_key(tenant, plain).weight) == (3, 2.0)
    assert (caller_with_key(tenant, urgent).priority, caller_with_key(tenant, urgent).weight) == (0, 2.0)


async def test_known_keys_open_for_a_while_without_the_broker_and_unknown_ones_do_not(tmp_path: Path) -> None:
    broker, bus = Broker(), Bus()
    broker.start("--jetstream", "--store_dir", str(tmp_path))
    await bus.connect(broker.url, "test", wait_s=10)
    patient, strict = Directory(bus, stale_s=60), Directory(bus, stale_s=0)
    await patient.start()
    key, _ = new_key("acme", time.time())
    await Bucket(bus, BUCKET).put(key_entry(key.id), msgspec.json.encode(key))
    assert await patient.key(key.id) == await strict.key(key.id) == key
    assert await patient.key("0" * 16) is None
    broker.kill()
    await asyncio.sleep(FRESH_S)
    assert await asyncio.gather(*(patient.key(key.id) for _ in range(3))) == [key] * 3
    with pytest.raises(Unavailable, match="keys cannot be checked"):
        await patient.key("0" * 16)
    with pytest.raises(Unavailable):
        await strict.key(key.id)
    await bus.close()


def test_a_request_of_a_known_tenant_can_only_let_others_pass() -> None:
    key, _ = new_key("acme", 0)
    acme = caller_with_key(Tenant(name="acme", created=0, limits=Limits(priority=3)), key)
    sampling = SamplingParams(seed=0)

    def effective(asked: int, by: Caller) -> int:
        return effective_priority(Generation(model=None, prompt="x", sampling=sampling, priority=asked), by)

    assert [effective(asked, acme) for asked in (-5, 0, 5, -1000)] == [-2, 3, 3, -997]
    assert [effective(asked, Caller()) for asked in (-1000, 5)] == [-1000, 5]
