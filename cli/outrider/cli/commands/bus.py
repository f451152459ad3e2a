"""The command `outrider bus`; its work is `outrider.cli.bus`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outrider.cli.bus.directory import BusDirectory

bus_app = typer.Typer(help="Users of the broker: their seeds and their rights.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of the seeds and of the broker's users.", file_okay=False)
]


@bus_app.command("config")
def config(
    directory: Directory,
    encrypt_store: Annotated[
        bool, typer.Option("--encrypt-store", help="Make a key, with which the broker encrypts what it stores.")
    ] = False,
) -> None:
    """Make a seed for each kind of service, and the list of users for the broker."""
    _run(directory, lambda bus: _write(bus, encrypt_store))


@bus_app.command("issue")
def issue(
    directory: Directory,
    tenant: Annotated[str, typer.Option(help="Tenant whose requests and answers the user may send and read.")],
) -> None:
    """Make a user for clients of a tenant, and have the broker read its users again."""
    _run(directory, lambda bus: _issue(bus, tenant))


@bus_app.command("rights")
def rights() -> None:
    """Print what each user may publish and subscribe to, as a Markdown table."""
    from outrider.cli.bus.table import rights_table

    typer.echo(rights_table())


def _write(bus: BusDirectory, encrypt_store: bool) -> None:
    if encrypt_store:
        bus.encrypt_store()
    bus.write()
    users, pid = bus.users.resolve(), bus.pid.resolve()
    print(f"nats-server --jetstream --config {users} --pid {pid} serves the users in it, and no others.")
    print(f"Services find their seeds by nats_credentials = {str(bus.path.resolve())!r}.")


def _issue(bus: BusDirectory, tenant: str) -> None:
    print(bus.issue(tenant))
    if not bus.reload():
        print(f"The broker must read {bus.users} again: nats-server --signal reload.", file=sys.stderr)


def _run(directory: Path, work: Callable[[BusDirectory], None]) -> None:
    from outrider.cli.bus.directory import BusDirectory
    from outrider.mesh.errors import ConfigError

    try:
        work(BusDirectory(directory))
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
