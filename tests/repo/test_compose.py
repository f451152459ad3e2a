"""The services of compose.yaml: their variables are settings, models are kept, and each sees its own secrets only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from outrider.cli.credentials import SERVICES as SERVED
from outrider.cli.settings import effective

REPOSITORY = Path(__file__).parents[2]
COMPOSE: dict[str, dict[str, Any]] = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WATCHERS = {"prometheus", "grafana"}
HELPERS = {"nats", "credentials", "admin", *WATCHERS}
KINDS = {name: name.removesuffix("-gpu").replace("prefill", "verifier") for name in SERVICES.keys() - HELPERS}
WITH_MODELS = {name for name, kind in KINDS.items() if kind in ("tokenizer", "proposer", "verifier")}


def variables(service: str, shell: dict[str, str]) -> dict[str, str]:
    """The variables of a service, for a shell in which compose is called; absent ones are left out."""
    given = SERVICES[service].get("environment", {})
    values = {name: shell.get(name) if value is None else interpolated(value, shell) for name, value in given.items()}
    return {name: value for name, value in values.items() if value is not None}


def interpolated(value: str, shell: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: shell.get(match[1]) or match[2], value)


def settings(service: str, shell: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of a service by key, as its process reads them."""
    for name, value in variables(service, shell).items():
        monkeypatch.setenv(name, value)
    return {key: setting.value for key, setting in effective(KINDS[service], None, {}).items()}


@pytest.mark.parametrize("service", sorted(KINDS))
def test_every_variable_is_a_setting_of_its_service(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = settings(service, {}, monkeypatch)
    assert read["nats_url"] == "tls://nats:4222"
    assert read["nats_credentials"] == "/credentials"
    assert (read["tls_certificate"], read["tls_key"]) == ("/credentials/{kind}.crt", "/credentials/{kind}.key")
    assert read["tls_ca"] == "/credentials/ca.crt"
    assert read.get("model", "pocket") == "pocket"


def test_ports_are_published_on_this_machine_alone_unless_an_address_is_given() -> None:
    ports = SERVICES["gateway"]["ports"]
    assert [interpolated(port, {}) for port in ports] == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8081"]
    everywhere = {"OUTRIDER_PUBLISH": "0.0.0.0"}
    assert all(interpolated(port, everywhere).startswith("0.0.0.0:") for port in ports)
    assert not [name for name in SERVICES.keys() - WATCHERS - {"gateway"} if "ports" in SERVICES[name]]


@pytest.mark.parametrize("service", sorted(WITH_MODELS))
def test_one_variable_names_the_model_of_all_services(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = settings(service, {"OUTRIDER_MODEL": "org/big", "OUTRIDER_PROPOSER_MODEL": "org/small"}, monkeypatch)
    if KINDS[service] == "proposer":
        assert (read["model"], read["target"]) == ("org/small", "org/big")
    else:
        assert read["model"] == "org/big"


@pytest.mark.parametrize("service", sorted(WITH_MODELS))
def test_services_with_models_keep_them_in_the_volume_and_pass_the_token_on(service: str) -> None:
    assert "models:/models" in SERVICES[service]["volumes"]
    shell = {"HF_TOKEN": "hf_x"}
    assert variables(service, shell)["HF_TOKEN"] == "hf_x"
    assert "HF_TOKEN" not in variables(service, {})
    images = (REPOSITORY / "Dockerfile").read_text()
    base = "with-models" if KINDS[service] == "tokenizer" else "engine"
    assert f"FROM {base} AS {KINDS[service]}\n" in images
    assert "FROM with-models AS engine\n" in images
    assert "HF_HOME=/models/" in images


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_a_service_has_no_rights_over_its_container(service: str) -> None:
    settings = SERVICES[service]
    assert settings["read_only"]
    assert settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc"} & settings.keys()


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - {"credentials", *WATCHERS}))
def test_a_service_sees_its_own_credentials_and_cannot_change_them(service: str) -> None:
    owner = KINDS.get(service) or {"nats": "broker"}.get(service, service)
    mounts = {mount for mount in SERVICES[service]["volumes"] if "/models" not in mount}
    where = "/credentials/broker" if owner == "broker" else "/credentials"  # a path in the configuration of the broker
    assert mounts - {"nats:/data"} == {f"{owner}:{where}:ro"}
    assert f"{owner}:/credentials/{owner}" in SERVICES["credentials"]["volumes"]


@pytest.mark.parametrize("watcher", sorted(WATCHERS))
def test_a_watcher_sees_no_credentials_and_answers_this_host_alone(watcher: str) -> None:
    mounts = [mount for mount in SERVICES[watcher]["volumes"] if mount != "prometheus:/prometheus"]
    assert all(mount.startswith("./deploy/observe") and mount.endswith(":ro") for mount in mounts)
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[watcher]["ports"])
    assert SERVICES[watcher]["profiles"] == ["observe"]


def test_what_watchers_are_given_is_there() -> None:
    given = [mount.split(":")[0] for watcher in WATCHERS for mount in SERVICES[watcher]["volumes"]]
    assert all((REPOSITORY / path).is_dir() for path in given if path.startswith("./"))
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (REPOSITORY / "deploy/observe/grafana" / home.lstrip("/")).is_file()


def test_who_sees_all_secrets_has_no_network() -> None:
    assert SERVICES["credentials"]["network_mode"] == "none"
    assert [name for name, each in SERVICES.items() if "secrets:/secrets" in each["volumes"]] == ["credentials"]


def test_folders_of_credentials_are_those_that_images_and_volumes_have() -> None:
    folders = {*SERVED, "admin", "broker"}
    assert folders <= COMPOSE["volumes"].keys()
    [made] = re.findall(r"mkdir (.*broker.*?) &&", (REPOSITORY / "Dockerfile").read_text())
    assert set(made.split()) == folders


def test_a_profile_has_one_kind_of_engine_and_the_default_is_that_for_cpus() -> None:
    engines = {name for name, kind in KINDS.items() if kind in ("proposer", "verifier")}
    assert {name: SERVICES[name]["profiles"] for name in engines} == {
        name: ["gpu" if name.endswith("-gpu") else "cpu"] for name in engines
    }
    assert "COMPOSE_PROFILES=cpu" in (REPOSITORY / ".env").read_text().splitlines()


def test_no_service_waits_for_one_that_a_profile_may_leave_out() -> None:
    awaited = {other for each in SERVICES.values() for other in each.get("depends_on", {})}
    assert not {name for name in awaited if "profiles" in SERVICES[name]}


@pytest.mark.parametrize("kind", ["proposer", "verifier"])
def test_each_service_on_a_gpu_is_given_its_own_one_by_name(kind: str) -> None:
    [device] = SERVICES[f"{kind}-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    [given] = device["device_ids"]
    assert "count" not in device
    assert [interpolated(given, shell) for shell in ({}, {f"OUTRIDER_{kind.upper()}_GPU": "1"})] == ["0", "1"]


def test_a_verifier_leaves_memory_of_its_gpu_to_a_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < settings("verifier-gpu", {}, monkeypatch)["memory_fraction"] < 0.9
