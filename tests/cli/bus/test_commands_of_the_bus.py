"""`outrider bus` and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import make_plan
from outrider.mesh.errors import ConfigError

from tests.certificates import Certified
from tests.cli.calls import outrider


def test_seeds_are_kept_and_the_list_of_users_is_written_anew(tmp_path: Path) -> None:
    assert outrider("bus", "config", str(tmp_path / "bus")).returncode == 0
    bus = BusDirectory(tmp_path / "bus")
    seed, users = bus.seed("gateway").read_bytes(), bus.users.read_text()
    bus.users.write_text("")
    assert outrider("bus", "config", str(bus.path)).returncode == 0
    assert (bus.seed("gateway").read_bytes(), bus.users.read_text()) == (seed, users)


def test_a_seed_that_is_none_is_named(tmp_path: Path) -> None:
    bus = BusDirectory(tmp_path)
    bus.write()
    bus.seed("issuer").write_bytes(bus.seed("gateway").read_bytes())
    with pytest.raises(ConfigError, match=r"issuer\.nk"):
        bus.write()


def test_a_mesh_has_new_seeds_at_every_start(tmp_path: Path) -> None:
    bus = BusDirectory(tmp_path / "bus")
    make_plan(UpOptions(port=0, log_dir=tmp_path))
    users = ("verifier", "client-default", "issuer")
    first = [bus.seed(user).read_bytes() for user in users]
    make_plan(UpOptions(port=0, log_dir=tmp_path))
    assert not set(first) & {bus.seed(user).read_bytes() for user in users}


def test_credentials_are_refused_for_a_broker_that_is_started(tmp_path: Path) -> None:
    sets = [f"verifier.nats_credentials={tmp_path}"]
    with pytest.raises(ConfigError, match=r"verifier\.nats_credentials .*--nats-url"):
        make_plan(UpOptions(port=0, log_dir=tmp_path, sets=sets))
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, sets=sets, nats_url="nats://127.0.0.1:4222"))
    assert (plan.broker.process, plan.broker.credentials, plan.broker.login.credentials) == (None, None, None)


def test_the_broker_shows_a_certificate_of_its_kind_and_keeps_it_when_users_change(tmp_path: Path) -> None:
    certified = Certified(tmp_path / "certs")
    bus = BusDirectory(tmp_path / "bus")
    done = outrider("bus", "config", str(bus.path), "--certs", str(certified.directory.path))
    assert (done.returncode, "broker.crt' cannot be read" in done.stderr) == (2, True)
    certified.issue("broker")
    assert outrider("bus", "config", str(bus.path), "--certs", str(certified.directory.path)).returncode == 0
    assert outrider("bus", "rotate", str(bus.path), "--grace", "0").returncode == 0
    assert "include ./tls.conf" in bus.users.read_text()
    assert bus.authorities.read_bytes() == certified.ca.read_bytes()


def test_servers_of_a_cluster_know_each_other_by_a_password_that_is_kept_and_by_certificates(tmp_path: Path) -> None:
    bus, certs = BusDirectory(tmp_path / "bus"), Certified(tmp_path / "certs")
    certs.issue("broker")
    hosts = ("--cluster", "nats-1", "--cluster", "nats-2")
    told = outrider("bus", "config", str(bus.path), *hosts).stdout
    assert " --name HOST " in told
    clear, password = bus.cluster.read_text(), (bus.path / "routes.key").read_text()
    assert [f"nats://route:{password}@{host}:6222" in clear for host in ("nats-1", "nats-2")] == [True, True]
    refused = outrider("bus", "config", str(bus.path), "--certs", str(certs.directory.path))
    assert (refused.returncode, "name its servers again with --cluster" in refused.stderr) == (2, True)
    assert outrider("bus", "config", str(bus.path), "--certs", str(certs.directory.path), *hosts).returncode == 0
    assert f'"ca_file":"{certs.ca}"' in bus.cluster.read_text().replace(" ", "")
    assert (bus.path / "routes.key").read_text() == password
    assert "include ./cluster.conf" in bus.users.read_text()
