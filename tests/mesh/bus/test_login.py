"""Logins to the broker, and what a bus says of forbidden operations."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.cli.bus.seeds import public_key
from outrider.mesh.bus import Bucket, Bus, Login, find_login
from outrider.mesh.errors import ConfigError, Unavailable
from structlog.testing import capture_logs

from tests.broker import Broker
from tests.users import guarded_broker
from tests.waiting import eventually


@pytest.fixture
def users(tmp_path: Path) -> BusDirectory:
    return BusDirectory(tmp_path / "bus")


@pytest.fixture
def guarded(users: BusDirectory, tmp_path: Path) -> Iterator[Broker]:
    broker = guarded_broker(users, "--jetstream", "--store_dir", str(tmp_path / "store"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
async def verifier(guarded: Broker, users: BusDirectory) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(guarded.url, "test", 10, find_login(str(users.path), "verifier"))
    yield bus
    await bus.close()


async def test_forbidden_operations_are_logged_with_their_subjects(
    verifier: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    verifier.publish("outrider.registry.announce.gateway", b"")
    await verifier.subscribe("tok.acme.*", lambda message: None)
    with pytest.raises(Unavailable):
        await Bucket(verifier, "outrider-tenants", timeout_s=0.5).put("key.1", b"")
    logged = ""

    def has_all() -> bool:
        nonlocal logged
        logged += capsys.readouterr().out
        return all(text in logged for text in ("announce.gateway", "tok.acme.*", "$kv.outrider-tenants.key.1"))

    await eventually(has_all, 10)
    assert logged.count("the broker forbids this") == 3


async def test_a_bus_joins_again_with_its_seed_after_the_broker_was_away(
    guarded: Broker, users: BusDirectory, verifier: Bus
) -> None:
    for seed in users.path.glob("*.nk"):
        seed.unlink()
    guarded.kill()
    await eventually(lambda: not verifier.connected)
    guarded.start()
    await eventually(lambda: verifier.connected)


async def test_old_and_new_seeds_are_valid_during_a_grace_and_then_the_new_ones_alone(
    guarded: Broker, users: BusDirectory, verifier: Bus, tmp_path: Path
) -> None:
    stolen = tmp_path / "stolen.nk"
    stolen.write_bytes(users.seed("gateway").read_bytes())
    thief, gateway = Bus(), Bus()
    await thief.connect(guarded.url, "thief", 10, Login("gateway", stolen))
    losses: list[bool] = []
    verifier.on_change(losses.append)
    users.rotate(grace_s=3600)
    guarded.reload()
    await _join(gateway, guarded, users)
    assert (losses, thief.connected) == ([], True)
    (users.path / "retired.json").unlink()
    users.write()
    with capture_logs() as logs:
        guarded.reload()
        await eventually(lambda: losses == [False, True])
        await eventually(lambda: _refused(logs))
    assert (gateway.connected, thief.connected) == (True, False)
    assert _refused(logs) == [
        f"NATS at {guarded.url} does not know this user: set nats_credentials to a seed that it knows"
    ]
    for bus in (thief, gateway):
        await bus.close()


async def _join(bus: Bus, broker: Broker, users: BusDirectory) -> None:
    """Joins when the broker has read the new users."""
    await bus.connect(broker.url, "test", 30, find_login(str(users.path), "gateway"))


def _refused(logs: Any) -> list[str]:
    return [line["why"] for line in logs if line["event"] == "NATS reported an error" and "EOF" not in line["why"]]


def test_the_old_keys_end_with_the_grace(users: BusDirectory) -> None:
    users.write()
    first = set(re.findall('"(U[A-Z0-9]+)"', users.users.read_text()))
    users.rotate(grace_s=0)
    assert first & set(re.findall('"(U[A-Z0-9]+)"', users.users.read_text())) == {public_key(users.client)}


def test_a_directory_has_a_seed_for_each_user(tmp_path: Path) -> None:
    assert find_login(str(tmp_path), "gateway") == Login("gateway", tmp_path / "gateway.nk")
    assert find_login(str(tmp_path / "own.nk"), "gateway") == Login("gateway", tmp_path / "own.nk")
    assert find_login("", "gateway") == Login("gateway", None)


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "cannot be read"), ("SUABC", "must hold the seed of an nkey")]
)
def test_credentials_that_are_none_are_refused_with_their_path(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    path = tmp_path / "gateway.nk"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=sentence) as caught:
        find_login(str(path), "gateway").read()
    assert str(path) in str(caught.value)
