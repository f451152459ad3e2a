"""A broker that speaks TLS: who is accepted, what the log says of refusals, and renewal without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.bus import Bus, find_login
from outrider.mesh.errors import Unavailable
from outrider.mesh.security import Certificates, Trust, trust_in, trust_of
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


async def joined(url: str, users: BusDirectory, trust: Trust, wait_s: float = 10) -> Bus:
    bus = Bus()
    try:
        await bus.connect(url, "test", wait_s, find_login(str(users.path), "verifier"), trust)
    except Unavailable:
        await bus.close()
        raise
    return bus


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


async def test_a_broker_of_another_authority_is_refused_in_one_sentence(
    url: str, users: BusDirectory, tmp_path: Path
) -> None:
    other = Certified(tmp_path / "other")
    sentence = f"the certificate of the broker at {url} is not trusted: unable to get local issuer certificate"
    with pytest.raises(Unavailable) as caught:
        await joined(url, users, trust_in(other.ca), wait_s=1)
    assert caught.value.message == sentence
    with pytest.raises(Unavailable, match="is not trusted"):
        await joined(url, users, Trust(), wait_s=1)


async def test_a_service_that_has_only_got_to_the_brokers_address_is_no_broker(
    users: BusDirectory, certified: Certified
) -> None:
    stolen = BusDirectory(users.path.parent / "stolen")
    stolen.write()
    files = certified.issue("verifier")
    stolen.tls.write_text(users.tls.read_text().replace("broker.", "verifier."))
    assert files.key.exists()
    broker = guarded_broker(stolen)
    broker.start()
    url = broker.url.replace("nats://", "tls://")
    with pytest.raises(Unavailable, match="is not that of a broker"):
        await joined(url, stolen, trust_in(certified.ca), wait_s=1)
    broker.kill()


async def test_each_side_in_the_clear_is_refused_in_one_sentence(
    broker: Broker, users: BusDirectory, certified: Certified
) -> None:
    with pytest.raises(Unavailable, match="the broker asks for TLS: write tls:// in nats_url"):
        await joined(broker.url, users, trust_in(certified.ca), wait_s=1)
    broker.kill()
    users.tls.unlink()
    users.write()
    broker.start()
    with pytest.raises(Unavailable, match="the broker does not speak TLS, and nats_url asks for it"):
        await joined(broker.url.replace("nats://", "tls://"), users, trust_in(certified.ca), wait_s=1)


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
