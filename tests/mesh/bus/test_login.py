"""Logins to the broker, and what a bus says of forbidden operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.mesh.bus import Bucket, Bus, Login, find_login
from outrider.mesh.errors import ConfigError, Unavailable

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
