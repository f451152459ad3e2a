"""A broker that speaks TLS: who is accepted, what the log says of refusals, and renewal without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.bus import Bus, find_login
from outrider.mesh.errors import Unavailable
from outrider.mesh.security import Certificates, Files, Trust, trust_in, trust_of
from structlog.testing import capture_logs

from tests.broker import Broker
from tests.certificates import Certified
from tests.mesh.security.serving import SHORT, end_of
from tests.users import guarded_broker
from tests.waiting import eventually


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(tmp_path / "authority")


@pytest.fixture
def users(tmp_path: Path, certified: Certified) -> BusDirectory:
    bus = BusDirectory(tmp_path / "bus")
    bus.encrypt(certified.issue("broker"))
    return bus


@pytest.fixture
def broker(users: BusDirectory) -> Iterator[Broker]:
    made = guarded_broker(users)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def url(broker: Broker) -> str:
    return broker.url.replace("nats://", "tls://")


@contextmanager
def serving(path: Path, files: Files | None = None) -> Iterator[str]:
    """The URL of another broker: with this certificate, of whatever kind, or in the clear."""
    bus = BusDirectory(path)
    bus.write()
    if files:
        bus.tls.write_text(f'tls: {{cert_file: "{files.certificate}", key_file: "{files.key}"}}')
    broker = guarded_broker(bus)
    broker.start()
    yield broker.url.replace("nats://", "tls://")
    broker.kill()


async def joined(url: str, users: BusDirectory, trust: Trust) -> Bus:
    bus = Bus()
    await bus.connect(url, "test", 30, find_login(str(users.path), "verifier"), trust)
    return bus


async def refused(url: str, users: BusDirectory, trust: Trust) -> str:
    """Why the broker at ``url`` cannot be joined."""
    bus = Bus()
    with pytest.raises(Unavailable) as caught:
        await bus.connect(url, "test", 3, find_login(str(users.path), "verifier"), trust)
    await bus.close()
    return caught.value.message


async def heard(speaker: Bus, listener: Bus) -> bool:
    """Whether a message of one arrives at the other."""
    got: list[bytes] = []
    subscription = await listener.subscribe("outrider.registry.announce.*", lambda message: got.append(message.data))
    speaker.publish("outrider.registry.announce.verifier", b"here")
    await eventually(lambda: got)
    await subscription.unsubscribe()
    return got == [b"here"]


async def test_services_and_commands_join_a_broker_of_their_trust_domain_at_whatever_address(
    url: str, users: BusDirectory, certified: Certified
) -> None:
    service = await joined(url, users, trust_of(certified.certificates("verifier")))
    command = await joined(url.replace("127.0.0.1", "localhost"), users, trust_in(certified.ca))
    assert await heard(service, command)
    for bus in (service, command):
        await bus.close()


async def test_whoever_is_no_broker_of_the_mesh_is_refused_in_one_sentence(
    url: str, users: BusDirectory, certified: Certified, tmp_path: Path
) -> None:
    stranger = Certified(tmp_path / "stranger")
    with serving(tmp_path / "verifier", certified.issue("verifier")) as thief, serving(tmp_path / "plain") as plain:
        told = await asyncio.gather(
            refused(url, users, trust_in(stranger.ca)),
            refused(url, users, Trust()),
            refused(thief, users, trust_in(certified.ca)),
            refused(plain, users, trust_in(certified.ca)),
            refused(url.replace("tls://", "nats://"), users, trust_in(certified.ca)),
        )
    untrusted = f"the certificate of the broker at {url} is not trusted: unable to get local issuer certificate"
    assert told[0] == untrusted
    assert told[1].startswith(f"the certificate of the broker at {url} is not trusted: ")
    assert told[2] == f"the certificate of the broker at {thief} is not that of a broker"
    assert told[3] == f"NATS at {plain} was not joined: the broker does not speak TLS, and nats_url asks for it"
    assert told[4].endswith(" was not joined: the broker asks for TLS: write tls:// in nats_url")


async def test_a_broker_whose_certificate_expired_is_refused_until_it_has_a_new_one(
    broker: Broker, url: str, users: BusDirectory, certified: Certified
) -> None:
    bus = await joined(url, users, trust_in(certified.ca))
    broker.kill()
    ending = Certificates(certified.issue("broker", SHORT), "broker")
    broker.start()
    await eventually(lambda: bus.connected)
    broker.kill()
    await eventually(lambda: not bus.connected)
    await end_of(ending)
    with capture_logs() as logs:
        broker.start()
        await eventually(lambda: _told(logs))
        certified.issue("broker")
        broker.reload()
        await eventually(lambda: bus.connected)
    assert _told(logs) == [f"the certificate of the broker at {url} has expired"]
    await bus.close()


async def test_a_silent_broker_does_not_keep_a_process_from_ending(
    broker: Broker, url: str, users: BusDirectory, certified: Certified
) -> None:
    bus = await joined(url, users, trust_in(certified.ca))
    broker.freeze()
    async with asyncio.timeout(25):
        await bus.close()
    broker.thaw()


def _told(logs: Any) -> list[str]:
    return [line["why"] for line in logs if line["event"] == "NATS reported an error" and "certificate" in line["why"]]
