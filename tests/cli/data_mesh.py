"""A mesh whose every place for data is in use, and a search of these places for a text."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
from outrider.mesh.addresses import hold_port

from tests.cli.calls import outrider
from tests.cli.running import Up

KINDS = ("gateway", "verifier", "proposer", "tokenizer", "kvcache")
_REGION = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw.*\n(?:(?!Rss).*\n)*?Rss: +([1-9]\d*)", re.MULTILINE)


class DataMesh:
    """A mesh with keys, a disk tier, kept answers, learnt suffixes, and the most verbose logs and traces.

    Attributes:
        tenant: a tenant with limits.
        key: its key.
    """

    tenant = "acme"

    def __init__(self, directory: Path) -> None:
        self.logs, self.store, self.pages = (directory / name for name in ("logs", "store", "pages"))
        self.probes = {kind: hold_port() for kind in KINDS}
        settings = {
            "mesh.log_level": "debug",
            "mesh.trace_exporter": "console",
            "mesh.timeline": self.logs / "timeline.jsonl",
            "gateway.auth": "keys",
            "gateway.cache_bytes": 1 << 20,
            "gateway.router": "prefix",
            "kvcache.tiers": "memory,disk",
            "kvcache.quotas": "memory=400000,disk=100000000",
            "kvcache.options.disk.path": self.pages,
            "verifier.kv_cache": "always",
            "verifier.pages": 256,
            "proposer.drafter": "suffix",
        } | {f"{kind}.metrics_port": port for kind, port in self.probes.items()}
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        places = ("--log-dir", str(self.logs), "--nats-store", str(self.store))
        self.up = Up("--proposers", "1", "--kvcaches", "1", *places, *sets)

    def open(self) -> None:
        """Waits for the mesh, and makes the tenant and its key."""
        self.up.wait_for("Ctrl-C drains")
        self.url = self.up.wait_for(r"serves at (\S+)")[0][1]
        self.grpc, self.nats_url = self.up.wait_for(r"gRPC at (\S+), and over NATS at (\S+)\.\n")[0].groups()
        assert self.command("tenants", "set", self.tenant, "--limit", "tokens_per_minute=1000000")[0] == 0
        self.key = self.command("keys", "create", "--tenant", self.tenant)[1].strip()

    def command(self, *words: str) -> tuple[int, str, str]:
        """Exit code and output of an `outrider` command on the mesh's broker."""
        done = outrider(*words, "--nats-url", self.nats_url)
        return done.returncode, done.stdout, done.stderr

    def post(self, path: str, key: str = "", **body: object) -> httpx.Response:
        """The answer to a request with the tenant's key, or with ``key``."""
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.post(f"{self.url}{path}", headers=headers, json=body, timeout=120)

    def end(self) -> None:
        """Drains the mesh."""
        self.up.process.terminate()
        self.up.process.wait(60)

    def close(self) -> None:
        """Ends the mesh, if it runs."""
        if self.up.process.poll() is None:
            self.end()
        self.up.kill()

    def logged(self) -> Iterator[tuple[str, str]]:
        """Output and logs, with traces and time lines; all of them are there once the mesh has ended."""
        yield "the terminal", "".join(self.up.lines)
        for file in (file for file in self.logs.iterdir() if file.is_file()):
            yield file.name, file.read_text(errors="replace")

    def shown(self) -> Iterator[tuple[str, str]]:
        """Metrics and command lines."""
        for kind, port in self.probes.items():
            yield f"metrics of {kind}", httpx.get(f"http://127.0.0.1:{port}/metrics").text
            yield f"command line of {kind}", Path(f"/proc/{self.up.pids(kind)[-1]}/cmdline").read_text()

    def on_disk(self, *patterns: bytes) -> dict[str, int]:
        """How often the broker's store and the pages' files hold one of ``patterns``, by file."""
        files = [file for root in (self.store, self.pages) for file in root.rglob("*") if file.is_file()]
        counts = {str(file): sum(map(file.read_bytes().count, patterns)) for file in files}
        return {file: count for file, count in counts.items() if count}

    def in_memory(self, kind: str, *patterns: bytes) -> int:
        """How often the memory of the process of ``kind`` holds one of ``patterns``."""
        process = Path(f"/proc/{self.up.pids(kind)[-1]}")
        count = 0
        with (process / "mem").open("rb", buffering=0) as memory:
            for start, end, _ in _REGION.findall((process / "smaps").read_text()):
                memory.seek(int(start, 16))
                data = memory.read(int(end, 16) - int(start, 16))
                count += sum(map(data.count, patterns))
        return count

    def page_files(self) -> int:
        """Number of pages on disk."""
        return sum(1 for _ in self.pages.glob("*/??/*"))


def as_ids(ids: list[int]) -> tuple[bytes, bytes]:
    """Token ids as 32-bit and 64-bit numbers."""
    return struct.pack(f"<{len(ids)}i", *ids), struct.pack(f"<{len(ids)}q", *ids)
