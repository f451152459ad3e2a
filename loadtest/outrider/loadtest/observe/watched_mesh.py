"""The mesh that the check watches: every kind of service, two verifiers with few pages, and tenants with keys."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from outrider.loadtest.meshes.site import Site, open_site
from outrider.loadtest.meshes.tenant_mesh import store_tenants
from outrider.mesh.addresses import hold_port
from outrider.wire.tenants import Limits

KINDS = ("tokenizer", "kvcache", "proposer", "verifier", "gateway")
VERIFIERS = ("verifier1", "verifier2")
LIMITS = {"apple": Limits(tokens_per_minute=1_000_000), "pear": Limits(requests_per_minute=6), "flood": Limits()}
"""Limits by tenant; the load takes ``pear`` to its limit."""
_MEASURED: dict[str, Any] = {"metrics_tenants": "all", "slo_first_token_s": 1.0, "slo_output_token_s": 0.1}
_FEW = {"max_running": 4, "pages": 160}
"""Settings with which a verifier has a queue and preemptions soon."""


class WatchedMesh(msgspec.Struct, frozen=True):
    """A running mesh: ``url`` of its gateway, ``keys`` by tenant, metrics ports (``targets``) by process."""

    site: Site
    url: str
    keys: dict[str, str]
    targets: dict[str, int]
    verifier: dict[str, Any]

    async def start_verifier(self, name: str) -> None:
        """Starts a verifier, again or for the first time; returns when it is ready."""
        await self.site.start("verifier", name, metrics_port=self.targets[name], **self.verifier)


@asynccontextmanager
async def running(folder: Path, model: Path | None, draft: Path | None) -> AsyncIterator[WatchedMesh]:
    """Runs the mesh inside the block, with the shipped models unless directories are named.

    A ``model`` without a ``draft`` drafts for itself. Certificates and the gateway's audit log are in ``folder``.
    """
    target, guesser = (str(directory or "pocket") for directory in (model, draft or model))
    tls = await asyncio.to_thread(_certify, folder)
    verifier = {"model": target, "drafters": "ngram,suffix", "threads": 1} | _FEW | tls
    settings: dict[str, dict[str, Any]] = {
        "tokenizer": {"model": target},
        "kvcache": {},
        "proposer": {"model": guesser, "target": target, "threads": 1},
        "gateway": _gateway(folder, Path(target).name),
    }
    async with open_site(stores=True) as site:
        keys, ports = await store_tenants(site.url, LIMITS), {name: hold_port() for name in (*settings, *VERIFIERS)}
        mesh = WatchedMesh(site, f"http://127.0.0.1:{settings['gateway']['port']}", keys, ports, verifier)
        for name in VERIFIERS:
            await mesh.start_verifier(name)
        for kind, given in settings.items():
            await site.start(kind, kind, metrics_port=ports[kind], **given, **tls)
        yield mesh


def _gateway(folder: Path, model: str) -> dict[str, Any]:
    prices = {model: {"prompt": 1.0, "cached": 0.1, "generated": 4.0}}
    ports = {"port": hold_port(), "grpc_port": hold_port(), "nats_door": "false"}
    told = {"audit_log": folder / "audit.jsonl", "prices": msgspec.json.encode(prices).decode()}
    return {"auth": "keys", "router": "prefix"} | ports | told | _MEASURED


def _certify(folder: Path) -> dict[str, str]:
    """Makes an authority and a certificate for each kind; returns the settings that name them."""
    command = [sys.executable, "-c", "from outrider.cli.main import main; main()", "certs"]
    for arguments in (["init"], *(["issue", kind] for kind in KINDS)):
        verb, *kind = arguments
        subprocess.run([*command, verb, str(folder / "certs"), *kind], check=True, stdout=subprocess.DEVNULL)
    made = {"certificate": "{kind}.crt", "key": "{kind}.key", "ca": "ca.crt"}
    return {f"tls_{what}": f"{folder}/certs/{name}" for what, name in made.items()}
