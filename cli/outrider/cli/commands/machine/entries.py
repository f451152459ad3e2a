"""The options of the commands of this room; a command imports its work when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from outrider.cli.commands.arguments import Config, Draft, Model, RunningUrl, Secure, Sets


def up(
    host: Annotated[str | None, typer.Option(help="Address of the gateway. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the gateway; 0 takes a free one. [8080]")] = None,
    model: Model = None,
    aliases: Annotated[
        list[str] | None,
        typer.Option("--alias", metavar="NAME", help="A further name of the model for requests; may be repeated."),
    ] = None,
    draft: Draft = None,
    verifiers: Annotated[int, typer.Option(min=1, help="Verifier processes.")] = 1,
    prefills: Annotated[int, typer.Option(min=0, help="Further verifiers, which compute prompts for the others.")] = 0,
    proposers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes for the draft model; 0 runs it in the verifier. \\[as is profitable]",
        ),
    ] = None,
    tokenizers: Annotated[int, typer.Option(min=1, help="Tokenizer processes.")] = 1,
    kvcaches: Annotated[int, typer.Option(min=0, help="KV cache processes.")] = 0,
    gateways: Annotated[int, typer.Option(min=1, help="Gateway processes, which share the port.")] = 1,
    nats_url: Annotated[str | None, typer.Option(help="A running NATS; else one is started.")] = None,
    nats_store: Annotated[
        Path | None, typer.Option(help="Where the NATS that is started keeps tenants, keys and limits.")
    ] = None,
    config: Config = None,
    sets: Sets = None,
    programs: Annotated[
        list[str] | None,
        typer.Option("--program", metavar="KIND=MODULE", help="Run MODULE in place of a service, to measure."),
    ] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Where logs go; a new directory if absent.")] = None,
    secure: Secure = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the logs of the services as well.")] = False,
) -> None:
    """Start the whole mesh on this machine; Ctrl-C drains and stops it."""
    from outrider.cli.commands.machine.up import run
    from outrider.cli.processes.options import UpOptions

    counts = {"verifier": verifiers, "tokenizer": tokenizers, "kvcache": kvcaches, "gateway": gateways}
    options = UpOptions(
        host=host,
        port=port,
        model=model,
        aliases=aliases or [],
        draft=draft,
        counts=counts,
        prefills=prefills,
        proposers=proposers,
        nats_url=nats_url,
        nats_store=nats_store,
        config=config,
        sets=sets or [],
        programs=programs or [],
        log_dir=log_dir,
        secure=secure,
        verbose=verbose,
    )
    raise typer.Exit(run(options))


def ps() -> None:
    """List the meshes that you run on this machine."""
    from outrider.cli.commands.machine.running import ps

    raise typer.Exit(ps())


def logs(
    service: Annotated[
        str, typer.Argument(metavar="[SERVICE]", help="Such as verifier, or verifier-1; else all.", show_default=False)
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines, until the mesh ends.")] = False,
    url: RunningUrl = None,
) -> None:
    """Print the logs of a mesh of this machine."""
    from outrider.cli.commands.machine.running import logs

    raise typer.Exit(logs(url, service, follow))


def stop(url: RunningUrl = None) -> None:
    """Drain a mesh of this machine, as Ctrl-C in its terminal does; returns when it has ended."""
    from outrider.cli.commands.machine.running import stop

    raise typer.Exit(stop(url))


def doctor(model: Model = None, draft: Draft = None, config: Config = None, sets: Sets = None) -> None:
    """Say what this machine has for `outrider up`, and what it lacks; exit code 1 if `up` cannot start."""
    from outrider.cli.commands.machine.doctor import run
    from outrider.cli.processes.options import UpOptions

    raise typer.Exit(run(UpOptions(model=model, draft=draft, config=config, sets=sets or [])))
