"""A Prometheus with the shipped configuration, which scrapes services of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from outrider.loadtest.observe.dashboards import FOLDER
from outrider.mesh.addresses import hold_port

_READY_S = 30.0
STEP_S = 5.0
"""Seconds between two values of what a query answers."""


class Alert(msgspec.Struct, frozen=True):
    """An alert that is pending or firing."""

    labels: dict[str, str]
    state: str


class Series(msgspec.Struct, frozen=True):
    """Values of one series: seconds since 1970, each with a number."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class Prometheus:
    """A running Prometheus; ``began`` is the time of its start."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http, self.began = http, time.time()

    async def series(self, query: str, step_s: float = STEP_S) -> list[Series]:
        """What a query answers from the start of Prometheus until now.

        Raises:
            ValueError: Prometheus refuses the query.
        """
        parameters = {"query": query, "start": self.began, "end": time.time(), "step": step_s}
        return msgspec.convert((await self._ask("query_range", parameters))["result"], list[Series])

    async def alerts(self) -> list[Alert]:
        """Alerts that are pending or firing."""
        return msgspec.convert((await self._ask("alerts"))["alerts"], list[Alert])

    async def names(self) -> set[str]:
        """Names of all metrics that targets show, also of those that have no series yet."""
        return set(await self._ask("metadata"))

    async def rules(self) -> dict[str, str]:
        """Expressions of all rules by their names."""
        groups = (await self._ask("rules"))["groups"]
        return {rule["name"]: rule["query"] for group in groups for rule in group["rules"]}

    async def _ask(self, path: str, parameters: Mapping[str, Any] | None = None) -> Any:
        answer = msgspec.json.decode((await self._http.get(f"/api/v1/{path}", params=parameters)).content)
        if answer["status"] != "success":
            raise ValueError(f"Prometheus refuses {parameters or path}: {answer['error']}")
        return answer["data"]


@asynccontextmanager
async def running(folder: Path, targets: Mapping[str, int]) -> AsyncIterator[Prometheus]:
    """Runs `prometheus` in ``folder`` inside the block; ``targets`` are metrics ports by the names of services.

    Raises:
        SystemExit: there is no `prometheus` on this machine, or it does not start.
    """
    if not shutil.which("prometheus"):
        raise SystemExit("there is no program prometheus: Debian's package of that name has it")
    port = hold_port()
    process = _start(folder, targets, port)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            await _wait(http, process)
            yield Prometheus(http)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def _start(folder: Path, targets: Mapping[str, int], port: int) -> subprocess.Popen[bytes]:
    config = folder / "prometheus.yaml"
    config.write_bytes(msgspec.json.encode(configuration(targets.items())))
    shutil.copy(FOLDER / "alerts.yaml", folder)
    flags = {"config.file": config, "storage.tsdb.path": folder / "tsdb", "web.listen-address": f"127.0.0.1:{port}"}
    return subprocess.Popen(["prometheus", "--log.level=warn", *(f"--{key}={value}" for key, value in flags.items())])


def configuration(targets: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """The shipped configuration with ``targets`` in place of what Docker's DNS would name."""
    shipped: dict[str, Any] = msgspec.yaml.decode((FOLDER / "prometheus.yaml").read_bytes())
    (job,) = shipped["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__meta_dns_name": name.rstrip("0123456789")}}
        for name, port in targets
    ]
    return shipped


async def _wait(http: httpx.AsyncClient, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            if (await http.get("/-/ready")).is_success:
                return
        await asyncio.sleep(0.1)
    raise SystemExit("prometheus did not start")
