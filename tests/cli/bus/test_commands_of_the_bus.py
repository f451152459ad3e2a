"""`outrider bus` and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from outrider.cli.bus.directory import BusDirectory
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import make_plan
from outrider.mesh.errors import ConfigError

from tests.cli.commands import outrider


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
    with pytest.raises(ConfigError, match=r"issuer\.nk holds no seed of an account's nkey"):
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
    with pytest.raises(
        ConfigError, match=r"verifier\.nats_credentials is for a NATS that runs already: give --nats-url"
    ):
        make_plan(UpOptions(port=0, log_dir=tmp_path, sets=sets))
    plan = make_plan(UpOptions(port=0, log_dir=tmp_path, sets=sets, nats_url="nats://127.0.0.1:4222"))
    assert (plan.broker.process, plan.broker.credentials, plan.broker.login.credentials) == (None, None, None)
