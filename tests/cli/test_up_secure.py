"""A mesh with TLS as a user starts it, with certificates of `outrider certs`."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from outrider_client import Client, ConnectionFailedError
from outrider_client import grpc as over_grpc

from tests.cli.commands import CLI, outrider
from tests.cli.running import READY, Up

KINDS = ("gateway", "tokenizer", "proposer", "verifier", "kvcache")
CONFIG = """
[mesh]
tls_certificate = "{certs}/{{kind}}.crt"
tls_key = "{certs}/{{kind}}.key"
tls_ca = "{certs}/ca.crt"

[gateway]
door_certificate = "{certs}/gateway.crt"
door_key = "{certs}/gateway.key"
"""


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secure") / "certs"
    assert outrider("certs", "init", str(folder)).returncode == 0
    for kind in KINDS:
        assert outrider("certs", "issue", str(folder), kind).returncode == 0
    return folder


@pytest.fixture(scope="module")
def up(certs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    config = certs.parent / "mesh.toml"
    config.write_text(CONFIG.format(certs=certs))
    logs = str(tmp_path_factory.mktemp("logs"))
    started = Up("--proposers", "1", "--kvcaches", "1", "--config", str(config), "--log-dir", logs)
    started.wait_for("Ctrl-C drains")
    yield started
    started.kill()


def test_every_service_gets_ready_and_a_completion_is_answered_over_https(up: Up, certs: Path) -> None:
    kinds = [match[1] for match in READY.finditer("".join(up.lines))]
    assert sorted(kinds) == ["gateway", "kvcache", "nats", "proposer", "tokenizer", "verifier"]
    url = up.wait_for(r"serves at (https://\S+)")[0][1]
    trusting = ssl.create_default_context(cafile=certs / "ca.crt")
    body = {"model": "pocket", "prompt": "def parse_args(", "max_tokens": 16}
    answer = httpx.post(f"{url}/v1/completions", json=body, verify=trusting, timeout=60)
    assert answer.json()["usage"]["completion_tokens"] == 16


def test_the_door_for_grpc_has_the_same_certificate(up: Up, certs: Path) -> None:
    address = up.wait_for(r"gRPC at (\S+),")[0][1]
    trusting = grpc.ssl_channel_credentials((certs / "ca.crt").read_bytes())
    with over_grpc.Client(address, credentials=trusting) as client:
        assert client.models() == ["pocket"]


def test_the_python_client_trusts_an_authority_that_it_is_given_and_no_other(up: Up, certs: Path) -> None:
    url = up.wait_for(r"serves at (https://\S+)")[0][1]
    with Client(url, ca=str(certs / "ca.crt")) as client:
        assert [model.id for model in client.models()] == ["pocket"]
    with Client(url, max_retries=0) as client, pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
        client.models()


def test_the_command_trusts_an_authority_that_it_is_given_and_no_other(up: Up, certs: Path) -> None:
    url = up.wait_for(r"serves at (https://\S+)")[0][1]
    ask = [*CLI, "complete", "def parse_args(", "--url", url, "--max-tokens", "8"]
    done = subprocess.run([*ask, "--ca", str(certs / "ca.crt")], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("def parse_args(")
    refused = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr == f"outrider: the certificate at {url} is not trusted: --ca names its authority\n"


def test_a_mesh_whose_certificate_is_missing_does_not_start(certs: Path, tmp_path: Path) -> None:
    half = [f"--set=mesh.tls_certificate={tmp_path}/{{kind}}.crt", f"--set=mesh.tls_key={tmp_path}/{{kind}}.key"]
    done = outrider("up", "--port", "0", *half, f"--set=mesh.tls_ca={certs}/ca.crt")
    assert done.returncode == 2
    assert "cannot be read: No such file or directory" in done.stderr
