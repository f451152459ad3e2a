"""What `outrider up --secure` makes before a process starts, and which settings win over it."""

from __future__ import annotations

import asyncio
import stat
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from outrider.cli.certificates.authority import Issue
from outrider.cli.certificates.directory import Directory
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import Plan, make_plan
from outrider.cli.processes.secure import keep_fresh
from outrider.mesh.errors import ConfigError

from tests.certificates import LOCAL, Certified
from tests.waiting import eventually


def command(plan: Plan, kind: str) -> list[str]:
    return next(spec.command for spec in plan.services if spec.kind == kind)


def own(certified: Certified) -> list[str]:
    return [f"mesh.{key}={value}" for key, value in certified.settings.items()]


def test_only_the_user_can_enter_what_is_made(tmp_path: Path) -> None:
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, secure=True))
    secured = plan.secured
    assert secured
    for path in (secured.path, secured.authority.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    keys = list(secured.authority.path.glob("*.key"))
    assert len(keys) == 8
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_all_connections_are_encrypted_and_clients_need_keys(tmp_path: Path) -> None:
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, secure=True))
    assert plan.url.startswith("https://")
    assert plan.broker.url.startswith("tls://")
    for kind in ("gateway", "verifier", "tokenizer"):
        assert "--metrics_tls=true" in command(plan, kind)
        assert f"--tls_ca={tmp_path}/secure/certificates/ca.crt" in command(plan, kind)
    assert "--auth=keys" in command(plan, "gateway")


def test_a_mesh_that_starts_again_in_its_directory_keeps_the_authority(tmp_path: Path) -> None:
    first = make_plan(UpOptions(port=0, log_dir=tmp_path, secure=True))
    assert first.secured
    folder = first.secured.authority.path
    authority, issued = (folder / "ca.crt").read_bytes(), (folder / "verifier.crt").read_bytes()
    make_plan(UpOptions(port=0, log_dir=tmp_path, secure=True))
    assert (folder / "ca.crt").read_bytes() == authority
    assert (folder / "verifier.crt").read_bytes() != issued


def test_certificates_and_keys_that_settings_name_win(tmp_path: Path) -> None:
    certified = Certified(tmp_path / "own")
    broker = certified.issue("broker")
    sets = [*own(certified), "gateway.auth=none", f"gateway.door_certificate={broker.certificate}"]
    sets.append(f"gateway.door_key={broker.key}")
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path / "logs", secure=True, sets=sets))
    assert plan.broker.certificates
    assert plan.broker.certificates.files.certificate == broker.certificate
    assert plan.secured
    assert (plan.secured.ca, plan.secured.asks_for_keys) == (None, False)
    assert not [part for part in command(plan, "gateway") if str(plan.secured.path) in part or part == "--auth=keys"]


def test_the_brokers_certificate_has_to_be_among_those_that_settings_name(tmp_path: Path) -> None:
    certified = Certified(tmp_path / "own")
    with pytest.raises(ConfigError, match=r"names no certificate of the broker: write .kind. in it, and issue one by"):
        make_plan(UpOptions(port=0, log_dir=tmp_path / "logs", secure=True, sets=own(certified)))


def test_the_broker_speaks_tls_where_settings_name_its_certificate_by_kind(tmp_path: Path) -> None:
    certified = Certified(tmp_path / "own")
    options = UpOptions(port=0, log_dir=tmp_path / "logs", sets=own(certified))
    assert make_plan(options).broker.url.startswith("nats://")
    certified.issue("broker")
    assert make_plan(options).broker.url.startswith("tls://")


def test_a_broker_that_runs_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--secure"):
        make_plan(UpOptions(port=0, log_dir=tmp_path, secure=True, nats_url="nats://127.0.0.1:4222"))


async def test_certificates_that_are_due_are_renewed_while_the_mesh_runs(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.init("outrider.internal", timedelta(days=1))
    directory.issue("fresh", Issue("verifier", LOCAL, timedelta(hours=1)))
    directory.issue("due", Issue("verifier", LOCAL, timedelta(seconds=1)))
    before = {name: (tmp_path / name).read_bytes() for name in ("fresh.crt", "due.crt")}
    keeping = asyncio.create_task(keep_fresh(directory, look_s=0.1))
    await eventually(lambda: (tmp_path / "due.crt").read_bytes() != before["due.crt"])
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    assert (tmp_path / "fresh.crt").read_bytes() == before["fresh.crt"]
