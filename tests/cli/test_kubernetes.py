"""Folders of credentials as Secrets: what is sent to the API of a cluster, which a small server stands in for."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from outrider.cli.credentials import hand_out
from outrider.cli.kubernetes import write_secrets
from outrider.mesh.errors import ConfigError

from tests.certificates import Certified

TOKEN = "a-token"
Secrets = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secrets() -> Secrets:
    """The Secrets of the namespace `llm`, by path."""
    return {}


@pytest.fixture
def api(secrets: Secrets, certified: Certified) -> Iterator[str]:
    """URL of a server that merges patches into Secrets that exist, for whoever has the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            admitted = self.headers["Authorization"] == f"Bearer {TOKEN}"
            merges = self.headers["Content-Type"] == "application/merge-patch+json"
            if found := admitted and merges and self.path in secrets:
                secrets[self.path] |= patch["data"]
            self.send_response(200 if found else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    files = certified.issue("broker")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def account(tmp_path: Path, certified: Certified) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(TOKEN)
    (folder / "namespace").write_text("llm")
    (folder / "ca.crt").write_bytes(certified.ca.read_bytes())
    return folder


def test_each_folder_becomes_the_contents_of_its_own_secret(
    secrets: Secrets, api: str, account: Path, tmp_path: Path
) -> None:
    hand_out(tmp_path / "secrets", tmp_path / "folders")
    folders = sorted((tmp_path / "folders").iterdir())
    secrets |= {f"/api/v1/namespaces/llm/secrets/mesh-{folder.name}": {"other": ""} for folder in folders}
    write_secrets(tmp_path / "folders", "mesh", api, account)
    for folder in folders:
        written = secrets[f"/api/v1/namespaces/llm/secrets/mesh-{folder.name}"]
        assert {name: b64decode(text) for name, text in written.items()} == {
            "other": b"",
            **{file.name: file.read_bytes() for file in folder.iterdir()},
        }


def test_a_secret_that_the_account_may_not_patch_is_told_in_one_sentence(
    api: str, account: Path, tmp_path: Path
) -> None:
    (tmp_path / "folders" / "gateway").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"secrets/mesh-gateway .*404"):
        write_secrets(tmp_path / "folders", "mesh", api, account)


def test_outside_a_pod_there_is_no_account(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.crt"):
        write_secrets(tmp_path, "mesh", account=tmp_path / "none")


def test_an_api_that_cannot_be_reached_is_told_in_one_sentence(account: Path, tmp_path: Path) -> None:
    (tmp_path / "folders" / "gateway").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"https://127\.0\.0\.1:1"):
        write_secrets(tmp_path / "folders", "mesh", "https://127.0.0.1:1", account)
