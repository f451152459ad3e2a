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


def run_with(bucket: str, client: str, work: Work, nats_url: str | None, config: Path | None) -> int:
    """Runs ``work`` on the bucket of that name, as the NATS client ``client``; returns the exit code."""
    configure_logs("error", "console")
    try:
        settings = effective("gateway", config, {})
        url = nats_url or settings["nats_url"].value
        credentials = settings["nats_credentials"].value or str(runs.find(url) or "")
        start_audit("cli", "", settings["audit_log"].value)
        asyncio.run(_connected(bucket, client, work, url, find_login(credentials, ADMIN)))
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    except OutriderError as error:
        print(f"outrider: {error.message}", file=sys.stderr)
        return FAILED
    finally:
        lost = stop_audit()
    return _tell_lost(lost) if lost else 0


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


async def _connected(name: str, client: str, work: Work, url: str, login: Login) -> None:
    bus = Bus()
    try:
        await bus.connect(url, client, _WAIT_S, login)
        bucket = Bucket(bus, name)
        await bucket.open()
        await work(bucket)
    finally:
        await bus.close()


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]], *, head: bool = True) -> None:
    """Prints rows as a table; with ``head``, the columns' names stand above them."""
    table = Table(*columns, box=None, pad_edge=False, show_header=head)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
