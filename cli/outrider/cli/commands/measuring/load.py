"""The commands `outrider load`: an open load at rising rates, and comparisons of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from outrider.cli.commands.arguments import ApiKey, Ca, Config, Draft, Model, Secure, Sets, note_missing_picture

if TYPE_CHECKING:
    from outrider.cli.processes.options import UpOptions
    from outrider.measure.ramp.result import Result
    from outrider.measure.ramp.run import Plan

load_app = typer.Typer(help="Open loads: requests that come at a rate, whether or not earlier ones are answered.")
WORSE = 1
"""Exit code of a comparison that finds something worse, and of a load without any answer."""


@load_app.command("run")
def load_run(
    url: Annotated[str | None, typer.Option(help="A running mesh; else one is started.")] = None,
    rates: Annotated[
        str, typer.Option(help="Requests a second, with commas. \\[rising ones until the mesh no longer keeps up]")
    ] = "",
    arrivals: Annotated[
        str, typer.Option(help="poisson, bursts:N (N at once), or trace:FILE (JSON Lines as Mooncake's).")
    ] = "poisson",
    seconds: Annotated[float, typer.Option(min=1, help="Measured seconds of each rate.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of each rate that are not measured.")] = 10,
    patience: Annotated[float, typer.Option(min=0, help="Seconds after them in which answers may end.")] = 30,
    repeats: Annotated[int, typer.Option(min=1, help="Times that each rate is measured.")] = 1,
    slo_first: Annotated[float, typer.Option(min=0.001, help="SLO: seconds to the first token.")] = 2.0,
    slo_token: Annotated[float, typer.Option(min=0.001, help="SLO: seconds for each further token.")] = 0.2,
    workload: Annotated[
        str | None,
        typer.Option(help="Chats of this kind: edit, code, chat, extract, rag or mixed; else code to continue."),
    ] = None,
    prompts: Annotated[Path | None, typer.Option(help="File of JSON Lines; else code held out of training.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of prompts, arrivals and sampling.")] = 0,
    out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("out/load"),
    api_key: ApiKey = None,
    ca: Ca = None,
    model: Model = None,
    draft: Draft = None,
    config: Config = None,
    sets: Sets = None,
    secure: Secure = False,
) -> None:
    """Raise the rate of requests until the mesh no longer keeps up; exit code 1 if no request was answered.

    Writes load.html and load.json.
    """
    settings = {
        "arrivals": arrivals,
        "seconds": seconds,
        "warm_up_s": warm_up,
        "patience_s": patience,
        "repeats": repeats,
        "workload": workload or "code to continue",
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    from outrider.cli.processes.options import UpOptions
    from outrider.measure.load.prompts import from_file, held_out
    from outrider.measure.ramp.figures import Slo
    from outrider.measure.ramp.level import Timing
    from outrider.measure.ramp.run import Plan
    from outrider.measure.ramp.schedules import schedule
    from outrider.mesh.access import Access

    with _sentences():
        plan = Plan(
            access=Access(""),
            model="",
            prompts=from_file(prompts) if prompts else held_out(),
            schedule=schedule(arrivals),
            rates=_rates(rates),
            repeats=repeats,
            timing=Timing(warm_up, seconds, patience),
            slo=Slo(slo_first, slo_token),
            workload=_workload(workload),
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )
        mesh = UpOptions(port=0, model=model, draft=draft, config=config, sets=sets or [], secure=secure)
        _publish(_measured(plan, settings, url, mesh, ca, api_key), out)


@load_app.command("compare")
def load_compare(
    before: Annotated[Path, typer.Argument(help="A load.json.")],
    after: Annotated[Path, typer.Argument(help="Another, measured at the same --rates.")],
    everything: Annotated[bool, typer.Option("--all", help="Show differences within the noise too.")] = False,
) -> None:
    """Say which differences of two results are more than noise; exit code 1 if something is worse."""
    from outrider.measure.ramp import comparison, result
    from rich.console import Console

    with _sentences():
        results = result.read(before), result.read(after)
        found = comparison.compare(*results)
        Console().print(comparison.table(found, everything))
        typer.echo(comparison.verdict(*results, found))
        if any(difference.verdict == "worse" for difference in found):
            raise typer.Exit(WORSE)


def _rates(text: str) -> list[float]:
    from outrider.mesh.errors import ConfigError

    try:
        rates = [float(rate) for rate in text.split(",") if rate.strip()]
    except ValueError:
        rates = [0.0]
    if not all(0 < rate < float("inf") for rate in rates):
        raise ConfigError(f"--rates {text}: it is written as numbers with commas, as in 0.5,1,2")
    return sorted(set(rates))


def _workload(name: str | None) -> str | None:
    from outrider.measure.chats.supply import WORKLOADS
    from outrider.mesh.errors import ConfigError

    if name not in (None, *WORKLOADS):
        raise ConfigError(f"--workload {name}: it is one of {', '.join(WORKLOADS)}")
    return name


def _measured(
    plan: Plan, settings: dict[str, object], url: str | None, mesh: UpOptions, ca: Path | None, key: str | None
) -> Result:
    import asyncio
    from dataclasses import replace

    import uvloop
    from outrider.cli.commands.asking.stream import served_model
    from outrider.cli.commands.measuring.measured_mesh import measured_mesh
    from outrider.measure.ramp import run
    from outrider.mesh.access import access_to
    from outrider.mesh.telemetry import configure_logs
    from rich.console import Console

    async def measure() -> Result:
        with Console().status("starting the mesh") as status:
            async with measured_mesh(url, mesh, status) as at:
                access = access_to(at, ca, key)
                model = await asyncio.to_thread(served_model, access)
                return await run.run(replace(plan, access=access, model=model), settings, status.update)

    configure_logs("error", "console")
    return uvloop.run(measure())


def _publish(result: Result, out: Path) -> None:
    from outrider.measure.ramp import page
    from outrider.measure.ramp.result import summary, table
    from rich.console import Console

    out.mkdir(parents=True, exist_ok=True)
    result.save(out / "load.json")
    if not page.save(result, out / "load.html"):
        note_missing_picture("load.html with curves")
    found, console = result.figures, Console()
    console.print(table(found))
    console.print(*summary(result, found), sep="\n", highlight=False, soft_wrap=True)
    console.print(f"Written to {out / 'load.json'} and {out / 'load.html'}.", highlight=False)
    if not result.answered:
        raise typer.Exit(WORSE)


@contextmanager
def _sentences() -> Iterator[None]:
    """Ends the command with one sentence and exit code 2, or that of the error, for what cannot be done."""
    from outrider.cli.commands.asking.stream import RequestError
    from outrider.cli.processes.keeper import StartError
    from outrider.measure.load.prompts import PromptsError
    from outrider.measure.ramp.result import ResultError
    from outrider.measure.ramp.schedules import ScheduleError
    from outrider.mesh.errors import ConfigError

    try:
        yield
    except (ConfigError, StartError, RequestError, PromptsError, ResultError, ScheduleError) as error:
        print(f"outrider: {error}", file=sys.stderr)
        raise typer.Exit(getattr(error, "exit_code", ConfigError.exit_code)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
