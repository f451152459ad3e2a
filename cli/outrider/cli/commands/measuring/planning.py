"""The commands `outrider profile` and `outrider plan`: what a mesh costs, and what mesh a load needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from outrider.cli.commands.arguments import ApiKey, Ca, Draft, Model, Sets, require

if TYPE_CHECKING:
    from outrider.measure.planning.profile import Profile

KINDS = ("gateway", "tokenizer", "verifier")
PerReplica = Annotated[list[str] | None, typer.Option(metavar="KIND=NUMBER", help="Of one replica; may be repeated.")]


def profile(
    url: Annotated[str | None, typer.Option(help="A running mesh; else one is started.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="With --url: http://HOST:PORT/metrics of a gateway, tokenizer or verifier; once for each."),
    ] = None,
    concurrency: Annotated[str, typer.Option(help="Concurrent requests; each number is a load.")] = "1,4,16,32",
    workload: Annotated[str, typer.Option(help="Chats: edit, code, chat, extract, rag or mixed.")] = "mixed",
    requests: Annotated[int, typer.Option(min=2, help="Fewest requests of a load.")] = 16,
    max_tokens: Annotated[int, typer.Option(min=2, help="Most tokens of an answer.")] = 128,
    verifiers: Annotated[int, typer.Option(min=1, help="Verifiers of the mesh that is started.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of prompts and sampling.")] = 0,
    out: Annotated[Path, typer.Option(help="The profile.")] = Path("profile.json"),
    model: Model = None,
    draft: Draft = None,
    sets: Sets = None,
    api_key: ApiKey = None,
    ca: Ca = None,
) -> None:
    """Measure what steps, prompts and services of a mesh cost; `outrider plan` reads the result."""
    from outrider.measure.chats.supply import WORKLOADS
    from outrider.measure.planning.measure import Wanted
    from outrider.mesh.access import access_to
    from outrider.mesh.errors import ConfigError

    with _sentences():
        if bool(url) != bool(metrics):
            raise ConfigError("--url and --metrics go together: the costs are read from the metrics of the services")
        if workload not in WORKLOADS:
            raise ConfigError(f"--workload {workload}: it is one of {', '.join(WORKLOADS)}")
        settings = _settings(sets or [])
        wanted = Wanted(
            access=access_to(url or "", ca, api_key),  # empty: that of the mesh which is started
            model="",
            metrics=metrics or [],
            settings={key.partition(".")[2]: value for key, value in settings.items() if key.startswith("verifier.")},
            concurrency=_numbers(concurrency),
            workload=workload,
            requests=requests,
            max_tokens=max_tokens,
            seed=seed,
        )
        from outrider.measure.planning import run

        measured = run.given(wanted) if url else run.started(wanted, settings, verifiers, model, draft)
        measured.save(out)
        _show(measured, out)


def plan(
    profile: Annotated[Path, typer.Argument(help="A file of `outrider profile`.", dir_okay=False)],
    rate: Annotated[float, typer.Option(min=0.001, help="Requests a second.")],
    prompt_tokens: Annotated[float, typer.Option(min=1, help="Mean tokens of a prompt.")],
    answer_tokens: Annotated[float, typer.Option(min=1, help="Mean tokens of an answer.")],
    slo_first: Annotated[float, typer.Option(min=0.001, help="Most seconds to the first token, for 95 %.")] = 2.0,
    slo_token: Annotated[float, typer.Option(min=0.0001, help="Most seconds of a further token, for 95 %.")] = 0.2,
    price_per_hour: PerReplica = None,
    watts: PerReplica = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulations.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the plan here, as JSON.")] = None,
) -> None:
    """Say how many replicas a load needs, what they cost and where they saturate, by simulation."""
    require("simpy", "plan", "plan")
    import msgspec
    from outrider.measure.planning import search, tables
    from outrider.measure.planning.profile import read
    from rich.console import Console

    with _sentences():
        prices, powers = _per_replica("--price-per-hour", price_per_hour), _per_replica("--watts", watts)
        demand = search.Demand(rate, prompt_tokens, answer_tokens, slo_first, slo_token, prices, powers, seed)
        found = search.find(read(profile), demand)
        Console().print(tables.plan(found))
        encoded = msgspec.json.format(msgspec.json.encode(found)).decode()
        typer.echo(encoded)
        if out:
            out.write_text(encoded + "\n")


def _show(measured: Profile, out: Path) -> None:
    from outrider.measure.planning import tables
    from rich.console import Console

    console = Console()
    console.print(tables.parts(measured), tables.steps(measured), sep="\n\n")
    console.print(*tables.facts(measured), f"Written to {out}.", sep="\n", highlight=False, soft_wrap=True)


def _numbers(text: str) -> list[int]:
    from outrider.mesh.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"--concurrency {text}: it is written as numbers with commas, as in 1,8")
    return sorted({int(part) for part in parts})


def _settings(sets: list[str]) -> dict[str, str]:
    from outrider.cli.settings import parse_sets

    return {f"{kind}.{key}": value for kind, flags in parse_sets(sets).items() for key, value in flags.items()}


def _per_replica(option: str, texts: list[str] | None) -> dict[str, float]:
    from outrider.mesh.errors import ConfigError

    values = {}
    for text in texts or []:
        kind, _, number = text.partition("=")
        try:
            values[kind] = float(number)
        except ValueError:
            values[kind] = -1.0
        if kind not in KINDS or not 0 <= values[kind] < float("inf"):
            raise ConfigError(f"{option} {text}: it is written KIND=NUMBER, with a kind of {', '.join(KINDS)}")
    return values


@contextmanager
def _sentences() -> Iterator[None]:
    """Ends the command with one sentence and exit code 2, or that of the error, for what cannot be done."""
    from outrider.cli.commands.asking.stream import RequestError
    from outrider.measure.load.prompts import PromptsError
    from outrider.measure.planning.profile import ProfileError
    from outrider.mesh.errors import ConfigError

    try:
        yield
    except (ConfigError, PromptsError, ProfileError, RequestError) as error:
        print(f"outrider: {error}", file=sys.stderr)
        raise typer.Exit(getattr(error, "exit_code", ConfigError.exit_code)) from None
