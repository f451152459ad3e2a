"""A broker that serves its users only, and a gateway that asks for keys and admits clients to the broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bucket, Bus, find_login
from outrider.wire.tenants import BUCKET, Key, Tenant, key_entry, new_key, tenant_entry

from tests.broker import Broker
from tests.processes import ServiceProcess
from tests.users import guarded_broker

TENANTS = ("acme", "other")


@dataclass(frozen=True)
class Secured:
    """The broker with its users, and the gateway's ports."""

    users: BusDirectory
    broker: Broker
    http_port: int
    grpc_port: int
    gateway: ServiceProcess

    @property
    def http(self) -> str:
        """The gateway's URL."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def grpc(self) -> str:
        """The gateway's address for gRPC."""
        return f"127.0.0.1:{self.grpc_port}"


@contextmanager
def open_secured(directory: Path) -> Iterator[Secured]:
    """The broker and the gateway, without any other service."""
    users, ports = BusDirectory(directory / "bus"), (hold_port(), hold_port())
    broker = guarded_broker(users, "--jetstream", "--store_dir", str(directory / "store"))
    broker.start()
    settings = {"nats_credentials": users.path, "port": ports[0], "grpc_port": ports[1], "auth": "keys"}
    settings |= {"failed_authentications": 100_000}  # tests show many wrong keys
    gateway = ServiceProcess("gateway", directory / "gateway.log", nats_url=broker.url, place_s=0, **settings)
    gateway.start()
    gateway.wait_ready()
    yield Secured(users, broker, *ports, gateway)
    gateway.stop()
    broker.kill()


async def joined(broker: Broker, users: BusDirectory, user: str) -> Bus:
    """A connection of one of the broker's own users."""
    bus = Bus()
    await bus.connect(broker.url, user, 10, find_login(str(users.path), user))
    return bus


async def make_key(secured: Secured, tenant: str, *, expires: float | None = None) -> str:
    """The text of a new key of ``tenant``."""
    key, text = new_key(tenant, time.time(), expires=expires)
    await save_key(secured.broker, secured.users, key)
    return text


async def save_key(broker: Broker, users: BusDirectory, key: Key) -> None:
    """Stores ``key`` and its tenant as `outrider keys` does."""
    bus = await joined(broker, users, "admin")
    bucket = Bucket(bus, BUCKET)
    await bucket.put(tenant_entry(key.tenant), msgspec.json.encode(Tenant(name=key.tenant, created=time.time())))
    await bucket.put(key_entry(key.id), msgspec.json.encode(key))
    await bus.close()
