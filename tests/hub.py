"""A server that speaks as much of the Hugging Face Hub's protocol as huggingface_hub asks for downloads."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "a" * 40
NEXT_COMMIT = "b" * 40
TOKEN = "hf_test"
_LARGE = (".safetensors", ".gguf", ".bin")


@dataclass
class Repository:
    """A repository's files by name, at one commit or more.

    Attributes:
        revisions: commits by branch or tag.
        gated: whether files are given to those with the token only.
        wrong: files whose content is not that of their SHA-256.
    """

    files: dict[str, bytes]
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    gated: bool = False
    wrong: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, directory: Path, **fields: object) -> Repository:
        """A repository with the files of a directory."""
        files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
        return cls(files, **fields)


class Hub:
    """A Hub on a free port.

    Attributes:
        repositories: by name.
        requests: method, path, and range of each request so far.
        cut_after: bytes of a file's content after which connections are cut; None for never.
        cuts: how many connections are cut.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.tokens: set[str] = set()
        self.cut_after: int | None = None
        self.cuts = 1_000_000
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Ends the server; its port refuses connections then."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def gets(self, name: str) -> list[str]:
        """Ranges of the GET requests for a file, in their order."""
        return [bounds for method, path, bounds in self.requests if method == "GET" and path.endswith(f"/{name}")]


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A Hub for the block."""
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """Variables of a process that uses ``hub``, with its cache below ``home``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NO_PROXY": "127.0.0.1"}
    return {**kept, **own, **more}


def outrider(variables: dict[str, str], *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """The command line, run with these variables."""
    command = [sys.executable, "-c", "from outrider.cli.main import main; main()", *arguments]
    return subprocess.run(command, env=variables, input=given, capture_output=True, text=True, timeout=120, check=False)


def python(variables: dict[str, str], code: str) -> subprocess.CompletedProcess[str]:
    """A program, run with these variables."""
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):  # clients end in the middle of answers
                super().handle()

        def log_message(self, *_: object) -> None: ...

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            with hub.lock:
                hub.requests.append((self.command, path, self.headers.get("Range", "")))
                hub.tokens.add(self.headers.get("Authorization", ""))
            parts = path.strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            name = "/".join(parts[2:4] if is_api else parts[:2])
            repository = hub.repositories.get(name)
            if repository is None:
                return self._fail(401, "RepoNotFound")
            wanted = (parts[5] if len(parts) > 5 else "main") if is_api else parts[3]
            commit = repository.revisions.get(wanted, wanted if wanted in repository.revisions.values() else None)
            if commit is None:
                return self._fail(404, "RevisionNotFound")
            if is_api:
                return self._send_json(_info(name, repository, commit))
            if repository.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self._fail(403, "GatedRepo")
            return self._send_file(repository, "/".join(parts[4:]), commit)

        def _send_json(self, document: object) -> None:
            body = json.dumps(document).encode()
            self._begin(200, len(body), {"Content-Type": "application/json"})
            self.wfile.write(body)

        def _send_file(self, repository: Repository, file: str, commit: str) -> None:
            content = repository.files.get(file)
            if content is None:
                return self._fail(404, "EntryNotFound")
            tag = _digest(file, content)
            if file in repository.wrong:
                content = content[:-1] + bytes([content[-1] ^ 1])
            start = (
                int(self.headers["Range"].removeprefix("bytes=").partition("-")[0]) if "Range" in self.headers else 0
            )
            headers = {"ETag": f'"{tag}"', "X-Repo-Commit": commit, "X-Linked-Size": str(len(content))}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            body = content[start:]
            self._begin(206 if start else 200, len(body), headers)
            if self.command == "GET":
                self._write(body)

        def _write(self, body: bytes) -> None:
            if hub.cut_after is None or len(body) <= hub.cut_after or hub.cuts == 0:
                self.wfile.write(body)
                return
            hub.cuts -= 1
            self.wfile.write(body[: hub.cut_after])
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)

        def _fail(self, status: int, code: str) -> None:
            self._begin(status, 0, {"X-Error-Code": code})

        def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()

    return Handler


def _digest(file: str, content: bytes) -> str:
    """The tag of a file: its SHA-256 if the Hub keeps it as a large one, else one of Git's length."""
    digest = hashlib.sha256(content).hexdigest()
    return digest if file.endswith(_LARGE) else digest[:40]


def _info(name: str, repository: Repository, commit: str) -> dict[str, object]:
    siblings = [
        {"rfilename": file, "size": len(content), "blobId": "0" * 40} | _lfs(file, content)
        for file, content in repository.files.items()
    ]
    return {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": [], "private": False}


def _lfs(file: str, content: bytes) -> dict[str, object]:
    if not file.endswith(_LARGE):
        return {}
    return {"lfs": {"sha256": _digest(file, content), "size": len(content), "pointerSize": 134}}
