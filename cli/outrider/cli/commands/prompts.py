"""The command `outrider prompts`; its work is `outrider.cli.stores.named_prompts`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from outrider.cli.commands.arguments import Config, NatsUrl

if TYPE_CHECKING:
    from outrider.cli.stores.named_prompts import StoredPrompts

prompts_app = typer.Typer(
    help="Named prompts: beginnings of requests that verifiers keep computed.", no_args_is_help=True
)

Tenant = Annotated[str, typer.Option(help="Tenant that owns the prompt.")]
Name = Annotated[str, typer.Argument(help="1 to 64 letters, digits, - and _.")]


@prompts_app.command("put")
def put(
    name: Name,
    file: Annotated[Path, typer.Option(help="Text of the prompt; - reads standard input.", dir_okay=False)],
    model: Annotated[str | None, typer.Option(help="Model that the prompt is for; else all models.")] = None,
    tenant: Tenant = "default",
    chat: Annotated[bool, typer.Option("--chat", help="The file is a JSON array of messages.")] = False,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Store a prompt; replace the prompt of the same name."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    _run(lambda prompts: prompts.put(name, tenant, model, text, chat), nats_url, config)


@prompts_app.command("list")
def list_(tenant: Tenant = "default", nats_url: NatsUrl = None, config: Config = None) -> None:
    """List a tenant's prompts."""
    _run(lambda prompts: prompts.list_all(tenant), nats_url, config)


@prompts_app.command("show")
def show(name: Name, tenant: Tenant = "default", nats_url: NatsUrl = None, config: Config = None) -> None:
    """Print the text of a prompt."""
    _run(lambda prompts: prompts.show(name, tenant), nats_url, config)


@prompts_app.command("evict")
def evict(name: Name, tenant: Tenant = "default", nats_url: NatsUrl = None, config: Config = None) -> None:
    """Remove a prompt; verifiers drop it."""
    _run(lambda prompts: prompts.evict(name, tenant), nats_url, config)


def _run(work: Callable[[StoredPrompts], Coroutine[Any, Any, None]], nats_url: str | None, config: Path | None) -> None:
    from outrider.cli.stores.named_prompts import run

    raise typer.Exit(run(work, nats_url, config))
