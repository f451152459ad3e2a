"""Options and checks that several commands have."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option("--config", help="TOML file with a table for each service.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SERVICE.KEY=VALUE", help="A setting that overrides the file; may be repeated."),
]
Model = Annotated[
    str | None,
    typer.Option(help="The target: a directory, a GGUF file, or org/repository of the Hub; else the shipped one."),
]
Draft = Annotated[
    str | None, typer.Option(help="The draft model or head, named like the target; the shipped one if absent.")
]
Url = Annotated[
    str | None,
    typer.Option(help="Address of a running mesh; else the only one of `outrider ps`, or http://127.0.0.1:8080."),
]
RunningUrl = Annotated[str | None, typer.Option("--url", help="Address of the mesh; needed where several run.")]
NatsUrl = Annotated[
    str | None,
    typer.Option(help="NATS of the mesh; else that of the only one of `outrider ps`, or the gateway's nats_url."),
]
Ca = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="PEM file of authorities to trust, for https.")
]
Secure = Annotated[bool, typer.Option("--secure", help="Encrypt all connections, and ask clients for keys.")]
ApiKey = Annotated[str | None, typer.Option(envvar="OUTRIDER_API_KEY", help="An API key, if the gateway requires one.")]
Speculation = Annotated[bool, typer.Option("--speculation/--no-speculation", help="Let drafters guess ahead.")]


def require(package: str, command: str, extra: str) -> None:
    """Ends a command with exit code 2 and one sentence that names ``extra`` if ``package`` is not installed."""
    if util.find_spec(package) is None:
        typer.echo(f"outrider: `outrider {command}` needs {package}: pip install 'outrider[{extra}]'", err=True)
        raise typer.Exit(2)


def note_missing_picture(picture: str) -> None:
    """Says that a report has no ``picture``, since matplotlib is not installed."""
    typer.echo(f"outrider: {picture} needs matplotlib: pip install 'outrider[plot]'", err=True)
