"""The command `outrider bus`; its work is `outrider.cli.bus`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outrider.cli.bus.directory import BusDirectory
    from outrider.mesh.security import Files

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
    certs: Annotated[
        Path | None,
        typer.Option(
            help="Directory of `outrider certs` with broker.crt and broker.key: the broker then speaks TLS only.",
            file_okay=False,
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Host of a server of the broker's cluster, once for each; 3 or 5 keep what is stored."
        ),
    ] = None,
) -> None:
    """Make a seed for each kind of service, and the list of users for the broker."""
    _run(directory, lambda bus: _write(bus, encrypt_store, certs, cluster or []))


@bus_app.command("rotate")
def rotate(
    directory: Directory,
    grace: Annotated[float, typer.Option(min=0, help="Seconds for which the old seeds stay valid.")] = 60.0,
) -> None:
    """Make a new seed for each kind of service; returns when the old ones have ended."""
    _run(directory, lambda bus: _rotate(bus, grace))


@bus_app.command("rights")
def rights() -> None:
    """Print what each user may publish and subscribe to, as a Markdown table."""
    from outrider.cli.bus.table import rights_table

    typer.echo(rights_table())


def _write(bus: BusDirectory, encrypt_store: bool, certs: Path | None, cluster: list[str]) -> None:
    from outrider.mesh.errors import ConfigError

    files = _files(certs) if certs else None
    if files and bus.cluster.exists() and not cluster:
        raise ConfigError(f"{bus.path} is of a cluster: name its servers again with --cluster, to encrypt routes too")
    if encrypt_store:
        bus.encrypt_store()
    if files:
        bus.encrypt(files)
    if cluster:
        bus.join_cluster(cluster, files)
    bus.write()
    users, pid, name = bus.users.resolve(), bus.pid.resolve(), " --name HOST" if bus.cluster.exists() else ""
    print(
        f"nats-server --jetstream{name} --config {users} --pid {pid} serves the users in it, and clients with API keys."
    )
    print(f"Services find their seeds by nats_credentials = {str(bus.path.resolve())!r}.")


def _files(certs: Path) -> Files:
    from outrider.mesh.security import BROKER, Files

    folder = certs.resolve()
    return Files("tls", folder / f"{BROKER}.crt", folder / f"{BROKER}.key", folder / "ca.crt")


def _rotate(bus: BusDirectory, grace_s: float) -> None:
    bus.rotate(grace_s)
    _reload(bus)
    print(f"New seeds are in {bus.path}; the old ones end in {grace_s:g} s.", flush=True)
    time.sleep(grace_s)
    bus.write()
    _reload(bus)


def _reload(bus: BusDirectory) -> None:
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
