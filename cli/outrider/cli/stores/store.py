"""Connects commands to the mesh's key-value store, and prints their tables."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from outrider.cli.bus import runs
from outrider.cli.bus.rights import ADMIN
from outrider.cli.settings import WIDTH, effective
from outrider.mesh.bus import Bucket, Bus, Login, find_login
from outrider.mesh.errors import ConfigError, OutriderError
from outrider.mesh.telemetry import configure_logs, start_audit, stop_audit
from rich.console import Console
from rich.markup import escape
from rich.table import Table

FAILED = 3
_WAIT_S = 2.0

Work = Callable[[Bucket], Coroutine[Any, Any, None]]
BusWork = Callable[[Bus], Coroutine[Any, Any, int]]


def run_with(bucket: str, client: str, work: Work, nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the bucket of that name, as the NATS client ``client``; returns the exit code."""

    async def opened(bus: Bus) -> int:
        values = Bucket(bus, bucket)
        await values.open()
        await work(values)
        return 0

    return run_on_bus(client, opened, nats_url, config)


def run_on_bus(client: str, work: BusWork, nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` as the NATS client ``client``; returns its exit code, or that of an error."""
    configure_logs("error", "console")
    try:
        settings = effective("gateway", config, {})
        url = nats_url or settings["nats_url"].value
        credentials = settings["nats_credentials"].value or str(runs.find(url) or "")
        start_audit("cli", "", settings["audit_log"].value)
        code = asyncio.run(_connected(client, work, url, find_login(credentials, ADMIN)))
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


async def _connected(client: str, work: BusWork, url: str, login: Login) -> int:
    bus = Bus()
    try:
        await bus.connect(url, client, _WAIT_S, login)
        return await work(bus)
    finally:
        await bus.close()


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, head: bool = True) -> None:
    """Prints rows as a table; with ``head``, the columns' names stand above them."""
    table = Table(*columns, box=None, pad_edge=False, show_header=head)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
