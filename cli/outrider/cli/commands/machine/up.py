"""`outrider up`: the whole mesh in one terminal."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable

import msgspec
from outrider.cli.processes.keeper import ProcessEvents, StartError
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.plan import Plan, make_plan
from outrider.cli.processes.printer import Printer
from outrider.cli.processes.supervisor import Supervisor
from outrider.mesh.errors import ConfigError
from outrider.mesh.local_meshes import LocalMesh, forget, remember, started, whose
from outrider.mesh.telemetry import configure_logs
from rich.console import Console
from setproctitle import setproctitle

POLL_S = 0.1
REPORT_AFTER_S = 15.0
KILLED = 130


def run(options: UpOptions) -> int:
    """Runs the mesh until a signal ends it; returns the exit code."""
    setproctitle("outrider up")
    configure_logs("warning", "console")
    try:
        return asyncio.run(_run(make_plan(options), Printer(Console()), options.verbose))
    except (ConfigError, StartError) as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code


@contextlib.asynccontextmanager
async def running_mesh(options: UpOptions, events: ProcessEvents) -> AsyncIterator[str]:
    """Runs a mesh inside the block; yields its URL. Raises what `make_plan` and `Supervisor.start` raise."""
    plan = make_plan(options)
    supervisor = Supervisor(plan, events)
    try:
        await supervisor.start()
        await _wait_until_ready(plan.url, lambda reason: None)
        yield plan.url
    finally:
        await supervisor.stop()


async def _run(plan: Plan, printer: Printer, verbose: bool) -> int:
    printer.plan(plan)
    supervisor = Supervisor(plan, printer)
    stop, second_signal = _catch_signals(supervisor)
    own = LocalMesh(
        pid=os.getpid(),
        started=started(os.getpid()),
        url=plan.url,
        model=plan.model,
        log_dir=str(plan.log_dir.resolve()),
        nats_url=plan.broker.url,
        since=time.time(),
        owner=whose(),
    )
    remember(own)
    serving = asyncio.create_task(_serve(supervisor, plan, printer, own))
    following = asyncio.create_task(printer.follow(plan)) if verbose else None
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    printer.started()
    if stop.is_set():
        printer.stopping()
    for task in (serving, stopping):
        task.cancel()
    await asyncio.wait({serving})
    await supervisor.stop()
    forget(own.pid)
    if following:
        following.cancel()
    if not serving.cancelled():
        serving.result()
    printer.stopped()
    return KILLED if second_signal.is_set() else 0


async def _serve(supervisor: Supervisor, plan: Plan, printer: Printer, own: LocalMesh) -> None:
    began = time.monotonic()
    await supervisor.start()
    await _wait_until_ready(plan.url, printer.waiting)
    remember(msgspec.structs.replace(own, ready=True))
    printer.started()
    printer.welcome(plan, time.monotonic() - began)
    await supervisor.run()


def _catch_signals(supervisor: Supervisor) -> tuple[asyncio.Event, asyncio.Event]:
    """Two events: set by the first signal to end, and by the second, which kills all processes.

    SIGHUP restarts the services, or asks to end where the terminal of this process was closed.
    """
    on_terminal = sys.stdout.isatty()
    stop, second_signal = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            second_signal.set()
            supervisor.kill()
        stop.set()

    def on_hangup() -> None:
        if on_terminal and not sys.stdout.isatty():
            return on_signal()
        supervisor.ask_to_restart()

    handlers = {signal.SIGINT: on_signal, signal.SIGTERM: on_signal, signal.SIGHUP: on_hangup}
    for number, handler in handlers.items():
        asyncio.get_running_loop().add_signal_handler(number, handler)
    return stop, second_signal


async def _wait_until_ready(url: str, waiting: Callable[[str], None]) -> None:
    """Returns when the gateway is ready to complete; calls ``waiting`` once with the reason of a long wait."""
    import httpx  # while the processes start

    report_at = time.monotonic() + REPORT_AFTER_S
    # The certificate may be for the name that clients use, which is not the address here; nothing secret is sent.
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        while True:
            reason = ""
            with contextlib.suppress(httpx.TransportError):
                response = await client.get(f"{url}/readyz")
                if response.status_code == 200:
                    return
                reason = response.text
            if time.monotonic() > report_at:
                waiting(reason)
                report_at = math.inf
            await asyncio.sleep(POLL_S)
