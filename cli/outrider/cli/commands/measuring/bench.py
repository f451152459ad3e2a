"""`outrider bench`: a load test of a running mesh, or of a mesh started for the test."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

import uvloop
from outrider.cli.commands.arguments import note_missing_picture
from outrider.cli.commands.asking.stream import RequestError, served_model
from outrider.cli.commands.measuring.measured_mesh import measured_mesh
from outrider.cli.processes.keeper import StartError
from outrider.cli.processes.options import UpOptions
from outrider.measure import bench
from outrider.measure.chats.supply import WORKLOADS
from outrider.measure.load.arrivals import Closed, Load, Open
from outrider.measure.load.prompts import PromptsError, from_file, held_out
from outrider.measure.report import plot_bench
from outrider.measure.report.bench_report import Report, headline, table
from outrider.mesh.access import access_to
from outrider.mesh.errors import ConfigError
from outrider.mesh.telemetry import configure_logs
from rich.console import Console

FAILED = 1


@dataclass(frozen=True)
class BenchOptions:
    """Options of `outrider bench`; see its help."""

    url: str | None
    concurrency: str
    rate: float | None
    requests: int | None
    max_tokens: int
    temperature: float
    speculation: str
    repeats: int
    prompts: Path | None
    workload: str | None
    out: Path
    seed: int
    api_key: str | None = None
    ca: Path | None = None

    @property
    def loads(self) -> list[Load]:
        """The loads to measure; `ConfigError` for a concurrency that is no positive number."""
        try:
            closed = [Closed(int(text)) for text in self.concurrency.split(",") if text.strip()]
        except ValueError:
            closed = [Closed(0)]
        if not all(load.concurrency > 0 for load in closed):
            raise ConfigError(f"--concurrency {self.concurrency}: it is written as numbers with commas, as in 1,8")
        return [*closed, *([Open(self.rate, self.seed)] if self.rate else [])]

    @property
    def modes(self) -> list[str]:
        """The modes of speculation to measure."""
        return [mode.strip() for mode in self.speculation.split(",") if mode.strip()]


def run(options: BenchOptions, mesh: UpOptions) -> int:
    """Runs the load test and writes its report; returns the exit code, 1 if a request failed."""
    configure_logs("error", "console")
    console = Console()
    try:
        report = uvloop.run(_measure(options, mesh, console))
    except (ConfigError, StartError, RequestError, PromptsError) as error:
        print(f"outrider: {error}", file=sys.stderr)
        return getattr(error, "exit_code", ConfigError.exit_code)
    except KeyboardInterrupt:
        return 130
    _publish(report, options.out, console)
    return FAILED if report.errors else 0


async def _measure(options: BenchOptions, mesh: UpOptions, console: Console) -> Report:
    loads, modes = options.loads, options.modes
    if options.workload not in (None, *WORKLOADS):
        raise ConfigError(f"--workload {options.workload}: it is one of {', '.join(WORKLOADS)}")
    prompts = from_file(options.prompts) if options.prompts else held_out()
    with console.status("starting the mesh") as status:
        async with measured_mesh(options.url, mesh, status) as url:
            access = access_to(url, options.ca, options.api_key)
            plan = bench.Plan(
                access=access,
                model=await asyncio.to_thread(served_model, access),
                prompts=prompts,
                loads=loads,
                modes=modes,
                requests=options.requests,
                repeats=options.repeats,
                max_tokens=options.max_tokens,
                temperature=options.temperature,
                seed=options.seed,
                workload=options.workload,
            )
            return await bench.run(plan, status.update)


def _publish(report: Report, out: Path, console: Console) -> None:
    out.mkdir(parents=True, exist_ok=True)
    report.save(out / "bench.json")
    written = [out / "bench.json"]
    if plot_bench.save(report, out / "bench.png"):
        written.append(out / "bench.png")
    else:
        note_missing_picture("bench.png")
    console.print(headline(report), highlight=False, soft_wrap=True, style="dim")
    console.print(table(report))
    console.print(f"Written to {' and '.join(map(str, written))}.", highlight=False)
    for error in report.errors:
        print(f"outrider: a request failed: {error}", file=sys.stderr)
