"""The mesh of `outrider up --secure` as a user meets it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import grpc
import httpx
import msgspec
import pytest
from outrider.cli.certificates.directory import Directory
from outrider.loadtest.load.repeated_request import RepeatedRequest, send_repeatedly
from outrider.measure.load.client import complete
from outrider.mesh.access import access_to
from outrider_client import AuthenticationError, Client, ConnectionFailedError
from outrider_client import grpc as over_grpc
from outrider_client import nats as over_nats

from tests.cli.calls import CLI, outrider
from tests.cli.running import READY, Up

pytestmark = pytest.mark.timeout(300)

PROMPT = {"prompt": "def parse_args(", "max_tokens": 60, "seed": 3, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture(scope="module", autouse=True)
def runtime() -> Iterator[None]:
    """A place of this module's own for links to meshes; paths of sockets have to be short."""
    folder = tempfile.mkdtemp(prefix="o-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def up(logs: Path) -> Iterator[Up]:
    started = Up("--secure", "--proposers", "1", "--kvcaches", "1", "--log-dir", str(logs))
    started.wait_for("Ctrl-C drains")
    yield started
    started.kill()


@pytest.fixture(scope="module")
def url(up: Up) -> str:
    return up.wait_for(r"serves at (https://\S+)")[0][1]


@pytest.fixture(scope="module")
def ca(logs: Path) -> Path:
    return logs / "secure" / "ca.crt"


@pytest.fixture(scope="module")
def key(up: Up) -> str:
    return Path(up.wait_for(r"The key of tenant default is in (\S+)\.\n")[0][1]).read_text().strip()


def test_every_service_gets_ready_and_the_printed_line_gets_an_answer(up: Up) -> None:
    kinds = [match[1] for match in READY.finditer("".join(up.lines))]
    assert sorted(kinds) == ["gateway", "kvcache", "nats", "proposer", "tokenizer", "verifier"]
    line = up.wait_for(r"  (curl -N --cacert .*)\n")[0][1]
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "data: [DONE]\n" in done.stdout


def test_a_request_without_a_key_is_refused(url: str, ca: Path) -> None:
    with Client(url, ca=str(ca), max_retries=0) as client, pytest.raises(AuthenticationError):
        client.complete(**PROMPT)


def test_the_grpc_api_has_the_same_certificate(up: Up, ca: Path, key: str) -> None:
    address = up.wait_for(r"gRPC at (\S+),")[0][1]
    trusting = grpc.ssl_channel_credentials(ca.read_bytes())
    with over_grpc.Client(address, credentials=trusting, api_key=key) as client:
        assert client.models() == ["pocket"]


def test_the_python_client_trusts_an_authority_that_it_is_given_and_no_other(url: str, ca: Path, key: str) -> None:
    with Client(url, ca=str(ca), api_key=key) as client:
        assert [model.id for model in client.models()] == ["pocket"]
    with Client(url, max_retries=0) as client, pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
        client.models()


def test_commands_of_the_same_user_find_the_authority_and_the_key(url: str, tmp_path: Path, key: str) -> None:
    ask = [*CLI, "complete", "def parse_args(", "--url", url, "--max-tokens", "8"]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("def parse_args(")
    elsewhere = {"XDG_RUNTIME_DIR": str(tmp_path), "OUTRIDER_API_KEY": key}
    refused = subprocess.run(ask, capture_output=True, text=True, check=False, env=elsewhere)
    assert refused.returncode == 1
    assert refused.stderr == f"outrider: the certificate at {url} is not trusted: --ca names its authority\n"


async def test_load_clients_of_the_same_user_find_the_authority_and_the_key(url: str, ca: Path, key: str) -> None:
    reply = await complete(url, PROMPT | {"model": "pocket"})
    assert reply.completion_tokens == PROMPT["max_tokens"]
    body = msgspec.Raw(msgspec.json.encode(PROMPT | {"max_tokens": 1}))
    task = RepeatedRequest(f"{url}/v1/completions", [body] * 5, 0, 2, access_to(url).headers, ca=str(ca))
    assert len((await asyncio.to_thread(send_repeatedly, task)).latencies) == 5


def test_commands_of_the_same_user_find_the_broker(up: Up) -> None:
    listed = outrider("tenants", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "default" in listed.stdout


async def test_the_python_client_joins_the_broker_over_tls_only(up: Up, ca: Path, key: str) -> None:
    nats_url = up.wait_for(r"over NATS at (tls://\S+)\.\n")[0][1]
    async with over_nats.AsyncClient(nats_url, ca=ca, api_key=key) as client:
        assert await client.models() == ["pocket"]
    async with over_nats.AsyncClient(nats_url, api_key=key, timeout=2, max_retries=0) as client:
        with pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.models()


def test_figures_are_encrypted_too(logs: Path, ca: Path) -> None:
    trusting = ssl.create_default_context(cafile=ca)
    for kind in ("gateway", "verifier", "tokenizer"):
        log = (logs / f"{kind}-1.log").read_text()
        probes = log.partition('"probes": "')[2].partition('"')[0]
        assert "outrider_bus_connected 1.0" in httpx.get(f"https://{probes}/metrics", verify=trusting).text


def test_no_stream_notices_that_certificates_and_seeds_are_renewed(
    up: Up, url: str, logs: Path, ca: Path, key: str
) -> None:
    renewed, long = threading.Event(), PROMPT | {"max_tokens": 400}

    def ask() -> set[str]:
        texts = set()
        with Client(url, ca=str(ca), api_key=key) as client:
            while not renewed.is_set():
                texts.add(client.complete(**long).text)
        return texts

    before = _certificate_of_broker(up)
    with ThreadPoolExecutor() as pool, Client(url, ca=str(ca), api_key=key) as client:
        readers = [pool.submit(ask) for _ in range(4)]
        Directory(logs / "secure" / "certificates").rotate(datetime.now(UTC), every=True)
        done = outrider("bus", "rotate", str(logs / "bus"), "--grace", "1")
        renewed.set()
        expected = client.complete(**long).text
        assert [reader.result() for reader in readers] == [{expected}] * 4
    assert (done.returncode, done.stderr) == (0, "")
    assert _certificate_of_broker(up) != before
    assert "NATS is lost" in (logs / "verifier-1.log").read_text()


def _certificate_of_broker(up: Up) -> bytes | None:
    """What the broker shows to a new connection, behind its greeting."""
    host, _, port = up.wait_for(r"over NATS at tls://(\S+)\.\n")[0][1].rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port))) as connection:
        while connection.recv(1) != b"\n":
            pass
        with context.wrap_socket(connection) as encrypted:
            return encrypted.getpeercert(binary_form=True)


def test_a_mesh_whose_certificate_is_missing_does_not_start(tmp_path: Path) -> None:
    half = [f"--set=mesh.tls_certificate={tmp_path}/{{kind}}.crt", f"--set=mesh.tls_key={tmp_path}/{{kind}}.key"]
    done = outrider("up", "--port", "0", *half, f"--set=mesh.tls_ca={tmp_path}/ca.crt")
    assert done.returncode == 2
    assert "cannot be read: No such file or directory" in done.stderr
