"""Connects commands to the mesh's key-value store, and prints their tables."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from outrider.cli.bus.rights import ADMIN
from outrider.cli.settings import effective
from outrider.mesh.access import login_at
from outrider.mesh.bus import Bucket, Bus, Login
from outrider.mesh.config import EffectiveSetting
from outrider.mesh.errors import ConfigError, OutriderError
from outrider.mesh.local_meshes import LocalMesh, only_mesh
from outrider.mesh.security import Trust
from outrider.mesh.telemetry import configure_logs, start_audit, stop_audit
from outrider.mesh.urls import require_broker
from rich.console import Console
from rich.markup import escape
from rich.table import Table

FAILED = 3
_WAIT_S = 2.0
_WIDEST = 10_000
"""Columns that no table has: a terminal wraps rows, and addresses in the rows can be copied."""

Work = Callable[[Bucket], Coroutine[Any, Any, None]]
BusWork = Callable[[Bus], Coroutine[Any, Any, int]]


def run_with(bucket: str, client: str, work: Work, nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the bucket of that name, as the NATS client ``client``; returns the exit code."""
    return run_on_bus(client, on_bucket(bucket, work), nats_url, config)


def on_bucket(name: str, work: Work) -> BusWork:
    """Work that opens the bucket ``name`` and runs ``work`` on it."""

    async def opened(bus: Bus) -> int:
        values = Bucket(bus, name)
        await values.open()
        await work(values)
        return 0

    return opened


def run_on_bus(client: str, work: BusWork, nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` as the NATS client ``client``; returns its exit code, or that of an error."""
    configure_logs("error", "console")
    try:
        settings = effective("gateway", config, {})
        start_audit("cli", f"cli-{token_hex(4)}", settings["audit_log"].value)
        replicas = settings["nats_replicas"].value
        code = asyncio.run(connected(client, work, *_way(nats_url, settings), replicas=replicas))
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    except OutriderError as error:
        print(f"outrider: {error.message}", file=sys.stderr)
        return FAILED
    finally:
        lost = stop_audit()
    return _tell_lost(lost) if lost else code


def _tell_lost(events: int) -> int:
    print(f"outrider: the change is made, and {events} events of it are not in the audit log", file=sys.stderr)
    return FAILED


def local_user() -> str:
    """The user of this host who runs the command, for the audit log."""
    uid = os.getuid()
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


async def connected(client: str, work: BusWork, url: str, login: Login, trust: Trust, replicas: int = 1) -> int:
    """Runs ``work`` on the broker at ``url``, where it makes ``replicas``. Raises what `Bus.connect` and it raise."""
    bus = Bus(replicas=replicas)
    try:
        await bus.connect(url, client, _WAIT_S, login, trust)
        return await work(bus)
    finally:
        await bus.close()


def _way(nats_url: str | None, settings: Mapping[str, EffectiveSetting]) -> tuple[str, Login, Trust]:
    """The way to the broker: as given, as set, or that of the only mesh that `outrider up` of this user runs."""
    configured = settings["nats_url"]
    if nats_url is None and configured.source == "default" and (mesh := only_mesh("--nats-url", _broker)):
        nats_url = mesh.nats_url
    url = nats_url or configured.value
    require_broker(url)
    authorities = settings["tls_ca"].value.replace("{kind}", "gateway")
    return url, *login_at(url, ADMIN, settings["nats_credentials"].value, authorities)


def _broker(mesh: LocalMesh) -> str:
    return mesh.nats_url


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, head: bool = True) -> None:
    """Prints rows as a table, never shortened; with ``head``, the columns' names stand above them."""
    table = Table(*columns, box=None, pad_edge=False, show_header=head)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    Console(width=_WIDEST).print(table)
