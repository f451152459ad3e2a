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
Draft = Annotated[str | None, typer.Option(help="The draft model, named like the target; the shipped one if absent.")]
Url = Annotated[
    str | None, typer.Option(help="Address of a running mesh. [http://127.0.0.1:8080, or https after up --secure]")
]
Ca = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="PEM file of authorities to trust, for https.")
]
Secure = Annotated[bool, typer.Option("--secure", help="Encrypt all connections, and ask clients for keys.")]
ApiKey = Annotated[str | None, typer.Option(envvar="OUTRIDER_API_KEY", help="An API key, if the gateway requires one.")]
Speculation = Annotated[bool, typer.Option("--speculation/--no-speculation", help="Let drafters guess ahead.")]


def require_checkout(command: str) -> None:
    """Ends a command that needs `outrider.loadtest` with exit code 2 if the package is absent, as from wheels."""
    if util.find_spec("outrider.loadtest") is None:
        typer.echo(f"outrider: `outrider {command}` runs from a source checkout: the wheel has no load tests", err=True)
        raise typer.Exit(2)
