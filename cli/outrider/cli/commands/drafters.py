"""The commands `outrider drafter`: training runs as a process of its own, since it needs torch, and help does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from outrider.cli.commands.arguments import Config, NatsUrl

if TYPE_CHECKING:
    from outrider.cli.stores.drafter_versions import StoredVersions

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

drafter_app = typer.Typer(
    help="Drafters trained for a target: heads that guess what it will say.", no_args_is_help=True
)

Drafter = Annotated[str, typer.Option(help="Name of the drafter.")]
Served = Annotated[str | None, typer.Option("--model", help="Target, as it is served; else the only one.")]
Tenant = Annotated[str | None, typer.Option(help="For this tenant alone.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for verifiers to change.")]


@drafter_app.command("use")
def use(
    source: Annotated[
        str, typer.Argument(metavar="MODEL_OR_DIR", help="Directory that verifiers see, or a name of the Hub.")
    ],
    drafter: Drafter = "head",
    version: Annotated[str | None, typer.Option(help="Name of the version. \\[v1, v2, ...]")] = None,
    model: Served = None,
    tenant: Tenant = None,
    wait: Wait = 120.0,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Have running verifiers change to another version of a drafter; exit code 1 if one does not."""
    place = str(Path(source).absolute()) if Path(source).exists() else source
    _stored(lambda versions: versions.use(place, version, (drafter, model, tenant), wait), nats_url, config)


@drafter_app.command("list")
def list_(nats_url: NatsUrl = None, config: Config = None) -> None:
    """List versions of drafters, and what each verifier runs."""
    _stored(lambda versions: versions.list_all(), nats_url, config)


@drafter_app.command("rollback")
def rollback(
    drafter: Drafter = "head",
    model: Served = None,
    tenant: Tenant = None,
    wait: Wait = 120.0,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Have running verifiers go back to the version before."""
    _stored(lambda versions: versions.rollback((drafter, model, tenant), wait), nats_url, config)


@drafter_app.command("train", context_settings=_PASSED_ON)
def train(context: typer.Context) -> None:
    """Train a drafter on answers of the target itself (`--help` lists the options)."""
    _run("train", context)


@drafter_app.command("eval", context_settings=_PASSED_ON)
def evaluate(context: typer.Context) -> None:
    """Measure a drafter, alone, on held-out prompts (`--help` lists the options)."""
    _run("eval", context)


def _stored(
    work: Callable[[StoredVersions], Coroutine[Any, Any, int]], nats_url: str | None, config: Path | None
) -> None:
    from outrider.cli.stores.drafter_versions import run

    raise typer.Exit(run(work, nats_url, config))


def _run(command: str, context: typer.Context) -> None:
    arguments = [sys.executable, "-m", "outrider.training.drafters", command, *context.args]
    raise typer.Exit(subprocess.run(arguments, check=False).returncode)
