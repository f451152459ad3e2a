"""The terminal output of `outrider up`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from outrider.cli.log_lines import LogLines
from outrider.cli.processes.child import Child
from outrider.cli.processes.first_key import FIRST_TENANT
from outrider.cli.processes.plan import Plan
from outrider.mesh.urls import without_passwords
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

DEFAULT_URL, SECURE_URL = "http://127.0.0.1:8080", "https://127.0.0.1:8080"
FOLLOW_S = 0.2


class Printer:
    """Prints events of the processes; in a terminal, a line below them shows what the start waits for, and how long."""

    def __init__(self, console: Console) -> None:
        self._console, self._model = console, ""
        self._starts: list[str] = []
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._start = self._progress.add_task("", total=None)

    def ready(self, child: Child, address: str) -> None:
        """Prints one line for a process that is ready."""
        seconds = time.monotonic() - child.began
        name = child.instance if child.spec.named else ""
        metrics = f"metrics {child.metrics_port}" if child.metrics_port else ""
        process = f"{child.spec.kind:<10} {name:<19} {address:<22} pid {child.pid:<8}"
        self._say(f"[green]✓[/] {process} {metrics:<13} {seconds:.1f} s")
        if child.spec.kind in self._starts:
            self._starts.remove(child.spec.kind)
            self._show_start()

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        """Prints one line for a process that ended, with the reason."""
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code > 0:
            reason += f": {escape(child.end_reason())}"
        self._say(f"[yellow]![/] {child.spec.kind:<10} ended ({reason}); starting it again in {again_in_s:g} s")

    def report(self, line: str) -> None:
        """Prints what a restart of all services did, which processes are waited for, or which is ended."""
        self._say(f"[blue]↻[/] {escape(line)}")

    def plan(self, plan: Plan) -> None:
        """Prints where the logs are, what the mesh may use of the machine, and the plan's notes."""
        self._say(f"[dim]Logs: {plan.log_dir}[/]")
        self._say(f"[dim]The mesh may use {plan.share}.[/]")
        for note in plan.notes:
            self._say(note)
        self._model, self._starts = plan.model, [spec.kind for spec in plan.services]
        self._show_start()
        self._progress.start()

    def started(self) -> None:
        """Removes the line of the start, however that ended."""
        self._progress.stop()

    def welcome(self, plan: Plan, seconds: float) -> None:
        """Prints the addresses, and commands to try."""
        self._say(f"\n[bold]Outrider serves at {plan.url}[/] after {seconds:.1f} s. Try:\n")
        url = "" if plan.url in (DEFAULT_URL, SECURE_URL) else f" --url {plan.url}"
        self._say(f"  {_command()} complete 'def parse_args('{url}")
        self._say(f"  {_command()} chat{url}")
        body = '{"prompt": "def parse_args(", "max_tokens": 64, "stream": true}'
        curl = f"curl -N{_trust(plan)} {plan.url}/v1/completions -H 'Content-Type: application/json'"
        self._say(f"  {curl} -d '{body}'\n")
        if plan.secured and plan.secured.asks_for_keys:
            self._say(f"The key of tenant {FIRST_TENANT} is in {plan.secured.key}.")
        self._say(f"The same over gRPC at {plan.grpc}, and over NATS at {without_passwords(plan.broker.url)}.")
        if plan.broker.credentials:
            self._say(f"NATS serves users whose seeds are in {plan.broker.credentials}: see docs/nats-api.md.")
        self._say("")
        self._say("[dim]Ctrl-C drains and stops; twice, it stops at once. SIGHUP restarts the services one by one.[/]")

    def stopping(self) -> None:
        """Prints that the mesh drains."""
        self._say("Draining …")

    def stopped(self) -> None:
        """Prints that all processes have ended."""
        self._say("Stopped.")

    def _show_start(self) -> None:
        kinds = ", ".join(dict.fromkeys(self._starts))
        self._progress.update(self._start, description=f"{self._model} loads; not ready: {kinds or 'the gateway'}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def waiting(self, reason: str) -> None:
        """Prints why a completion would fail although all processes are ready."""
        self._say(f"Not ready yet: {escape(reason)}")

    async def follow(self, plan: Plan) -> None:
        """Prints new lines of the services' logs, until cancelled."""
        lines = LogLines(plan.log_dir)
        while True:
            for name, line in lines.new():
                self._say(f"[dim]{name:<12}[/] {escape(line)}")
            await asyncio.sleep(FOLLOW_S)


def _trust(plan: Plan) -> str:
    """Options of curl for a secure mesh."""
    if plan.secured is None:
        return ""
    ca = f" --cacert {plan.secured.ca}" if plan.secured.ca else ""
    return ca + (f' -H "Authorization: Bearer $(cat {plan.secured.key})"' if plan.secured.asks_for_keys else "")


def _command() -> str:
    """How the user calls `outrider`: by name if the shell finds it, else by path."""
    return "outrider" if shutil.which("outrider") else os.path.relpath(Path(sys.executable).with_name("outrider"))
