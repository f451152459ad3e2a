"""`outrider trace-steps`: where the time of one request goes, as a picture and a table."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import uvloop
from outrider.cli.commands.asking.stream import Answer, CompletionRequest, RequestError
from outrider.cli.commands.machine.up import running_mesh
from outrider.cli.commands.time_line import plot_steps
from outrider.cli.commands.time_line.steps import Trace, TraceError, trace
from outrider.cli.processes.child import Child
from outrider.cli.processes.keeper import StartError
from outrider.cli.processes.options import UpOptions
from outrider.mesh.access import access_to
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry import configure_logs
from outrider.mesh.telemetry.timeline import read_events
from rich.console import Console

FAILED = 1
PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class TraceOptions:
    """Options of `outrider trace-steps`; see its help."""

    url: str | None
    events: list[Path]
    request: CompletionRequest
    repeats_before: int
    out: Path
    api_key: str | None = None
    ca: Path | None = None


def run(options: TraceOptions, mesh: UpOptions) -> int:
    """Traces one request, draws and prints its steps; returns the exit code."""
    configure_logs("error", "console")
    try:
        _publish(uvloop.run(_trace(options, mesh)), options.out)
    except (ConfigError, StartError, RequestError) as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    except (TraceError, OSError, msgspec.DecodeError) as error:
        print(f"outrider: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


async def _trace(options: TraceOptions, mesh: UpOptions) -> Trace:
    _check(options)
    async with _mesh(options, mesh) as (url, files):
        for _ in range(options.repeats_before):
            await asyncio.to_thread(_send, url, options)
        request_id = await asyncio.to_thread(_send, url, options)
        return trace(read_events(files), request_id)


def _check(options: TraceOptions) -> None:
    """`ConfigError` for options that exclude each other."""
    if options.url and not options.events:
        raise ConfigError("--url needs --events: the file that the setting timeline of the running services names")
    if len(options.events) > 1 and not options.url:
        raise ConfigError("--events may be repeated with --url only: a mesh that is started here writes one file")
    if options.out.suffix not in PICTURES:
        raise ConfigError(f"--out {options.out}: the name has to end with {', '.join(PICTURES)}")


def _send(url: str, options: TraceOptions) -> str:
    """Sends the request and reads its whole answer; returns the request's id."""
    answer = Answer(access_to(url, options.ca, options.api_key), options.request)
    for _ in answer:
        pass
    return answer.request_id


@contextlib.asynccontextmanager
async def _mesh(options: TraceOptions, mesh: UpOptions) -> AsyncIterator[tuple[str, list[Path]]]:
    """URL and files of events: the given ones, or those of a mesh started here."""
    if options.url:
        yield options.url, options.events
        return
    with tempfile.TemporaryDirectory(prefix="outrider-") as directory:
        events = next(iter(options.events), Path(directory) / "timeline.jsonl").absolute()
        traced = replace(mesh, sets=[*mesh.sets, f"mesh.timeline={events}"])
        async with running_mesh(traced, _DeathPrinter()) as url:
            yield url, [events]


class _DeathPrinter:
    """Prints deaths of processes on standard error."""

    def ready(self, child: Child, address: str) -> None:
        """Prints nothing."""

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        """Prints that a process died, since the time line then shows its restart."""
        print(f"outrider: {child.spec.kind} died (exit code {code}); it is started again", file=sys.stderr)

    def report(self, line: str) -> None:
        """Prints nothing: the mesh ends with the command."""


def _publish(traced: Trace, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    plot_steps.save(traced, out)
    console = Console()
    console.print(plot_steps.table(traced))
    console.print(f"Written to {out}.", highlight=False)
