"""`outrider credentials`: what each service gets, how it is renewed, and that a broker works with its part."""

from __future__ import annotations

import asyncio
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from outrider.cli.certificates.authority import Issue
from outrider.cli.certificates.directory import Directory
from outrider.cli.credentials import SERVICES, hand_out
from outrider.mesh.bus import Bucket, Bus, find_login
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.mesh.security import Certificates, Files, trust_in
from outrider.wire import tenants

from tests.broker import Broker
from tests.cli.calls import CLI
from tests.waiting import eventually


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    return tmp_path / "secrets"


@pytest.fixture
def folders(secrets: Path, tmp_path: Path) -> Path:
    hand_out(secrets, tmp_path / "folders")
    return tmp_path / "folders"


@pytest.fixture
def broker(folders: Path, tmp_path: Path) -> Iterator[Broker]:
    started = Broker(
        "--config", str(folders / "broker" / "users.conf"), "--jetstream", "--store_dir", str(tmp_path / "store")
    )
    started.start()
    yield started
    started.kill()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_has_what_its_service_needs_and_nothing_of_another(folders: Path) -> None:
    parts = {kind: {f"{kind}.nk", f"{kind}.crt", f"{kind}.key", "ca.crt"} for kind in SERVICES}
    parts["admin"] = {"admin.nk", "ca.crt"}
    parts["broker"] = {"broker.crt", "broker.key", "users.conf", "encryption.conf", "tls.conf"}
    parts["gateway"].add("issuer.nk")
    assert files(folders).keys() == {f"{folder}/{name}" for folder, names in parts.items() for name in names}
    modes = {name: stat.S_IMODE((folders / name).stat().st_mode) for name in files(folders)}
    assert {name for name, mode in modes.items() if mode != 0o600} == {n for n in modes if n.endswith(".crt")}
    for kind in SERVICES:
        where = [folders / kind / name for name in (f"{kind}.crt", f"{kind}.key", "ca.crt")]
        Certificates(Files("tls", *where), kind)  # raises if they do not belong together


def test_what_is_there_is_kept_and_a_certificate_that_is_due_is_renewed(secrets: Path, folders: Path) -> None:
    before = files(folders)
    hand_out(secrets, folders)
    assert files(folders) == before
    Directory(secrets / "certs").issue("gateway", Issue("gateway", ["api.example.com"], timedelta(minutes=1)))
    due = (secrets / "certs" / "gateway.crt").read_bytes()
    hand_out(secrets, folders)
    after = files(folders)
    assert {name for name in after if after[name] != before[name]} == {"gateway/gateway.crt", "gateway/gateway.key"}
    assert after["gateway/gateway.crt"] != due
    [gateway] = [each for each in Directory(secrets / "certs").issued() if each.name == "gateway"]
    assert (gateway.hosts, gateway.ends - gateway.begins) == (["api.example.com"], timedelta(minutes=6))


def test_a_folder_that_cannot_be_written_is_one_sentence(secrets: Path, folders: Path) -> None:
    (folders / "gateway" / "gateway.nk").unlink()
    (folders / "gateway" / "gateway.nk").mkdir()
    with pytest.raises(ConfigError, match=r"gateway\.nk"):
        hand_out(secrets, folders)


async def test_the_command_goes_on_until_it_is_told_to_end(secrets: Path, tmp_path: Path) -> None:
    folders = tmp_path / "folders"
    command = [*CLI, "credentials", str(secrets), "--into", str(folders), "--every", "0.1"]
    process = await asyncio.create_subprocess_exec(*command)
    await eventually((folders / "broker" / "users.conf").exists)
    (folders / "gateway" / "gateway.nk").unlink()
    await eventually((folders / "gateway" / "gateway.nk").exists)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


def secure(broker: Broker) -> str:
    return broker.url.replace("nats://", "tls://")


@asynccontextmanager
async def joined(broker: Broker, folders: Path, user: str) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(
        secure(broker), "test", 10, find_login(str(folders / user), user), trust_in(folders / user / "ca.crt")
    )
    yield bus
    await bus.close()


async def test_the_broker_serves_whoever_has_a_folder_and_nobody_else(broker: Broker, folders: Path) -> None:
    stranger = Bus()
    with pytest.raises(Unavailable, match="does not know this user"):
        await stranger.connect(secure(broker), "test", 2, trust=trust_in(folders / "admin" / "ca.crt"))
    await stranger.close()
    await asyncio.sleep(1)  # longer than the end of TLS may take
    async with joined(broker, folders, "verifier") as verifier:
        assert verifier.connected


def test_the_certificate_of_the_broker_is_for_its_host_and_lives_as_long_as_the_authority(
    secrets: Path, folders: Path
) -> None:
    certs = Directory(secrets / "certs")
    [broker] = [each for each in certs.issued() if each.name == "broker"]
    assert "nats" in broker.hosts
    assert broker.ends == certs.authority().ends


async def test_what_the_broker_stores_cannot_be_read_without_the_key(
    broker: Broker, folders: Path, tmp_path: Path
) -> None:
    async with joined(broker, folders, "admin") as admin:
        bucket = Bucket(admin, tenants.BUCKET, timeout_s=10)
        await bucket.open()
        await bucket.put("a-secret-tenant", b"a-secret-limit")
    broker.kill()
    stored = files(tmp_path / "store")
    assert stored
    assert not [name for name, content in stored.items() if b"a-secret" in content]
    broker.start()
    async with joined(broker, folders, "admin") as admin:
        entry = await Bucket(admin, tenants.BUCKET, timeout_s=10).get("a-secret-tenant")
        assert entry is not None
        assert entry.value == b"a-secret-limit"
