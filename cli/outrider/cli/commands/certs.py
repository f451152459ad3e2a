"""The commands `outrider certs`: an authority of the mesh's own, and certificates of services."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from outrider.cli.certificates.defaults import AUTHORITY_DAYS, DAYS, LOCAL_HOSTS, TRUST_DOMAIN

if TYPE_CHECKING:
    from outrider.cli.certificates.directory import Issued

certs_app = typer.Typer(help="Certificates for TLS between services, from an authority in a directory.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the authority.")]
Days = Annotated[float, typer.Option(min=0.01, max=3650, help="Days until it expires.")]


@certs_app.command("init")
def certs_init(
    folder: Folder,
    trust_domain: Annotated[str, typer.Option(help="Name of the mesh in its certificates.")] = TRUST_DOMAIN,
    days: Days = AUTHORITY_DAYS,
) -> None:
    """Make an authority; its key stays in DIR, which only you can read."""
    from outrider.cli.certificates.directory import Directory

    with _sentences():
        authority = Directory(folder).init(trust_domain, timedelta(days=days))
        typer.echo(f"The authority of {trust_domain} is in {folder}, until {authority.ends:%Y-%m-%d %H:%M} UTC.")


@certs_app.command("issue")
def certs_issue(
    folder: Folder,
    kind: Annotated[
        str, typer.Argument(help="What it is for: gateway, tokenizer, proposer, verifier, kvcache, broker or client.")
    ],
    name: Annotated[str | None, typer.Option(help="Name of its files. \\[that of the kind]")] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or an address for clients of a gateway; may be repeated. \\[localhost, 127.0.0.1, ::1]",
        ),
    ] = None,
    days: Days = DAYS,
) -> None:
    """Issue a certificate and a new key, as NAME.crt and NAME.key in DIR."""
    from outrider.cli.certificates.authority import Issue
    from outrider.cli.certificates.directory import Directory

    with _sentences():
        _require_kind(kind)
        known_by = hosts or (() if kind == "client" else LOCAL_HOSTS)
        issue = Issue(kind, known_by, timedelta(days=days))
        _print([Directory(folder).issue(name or kind, issue)])


@certs_app.command("rotate")
def certs_rotate(
    folder: Folder,
    every: Annotated[bool, typer.Option("--all", help="Also those that are not due.")] = False,
) -> None:
    """Issue anew every certificate of which less than a third of its time is left."""
    from outrider.cli.certificates.directory import Directory

    with _sentences():
        renewed = Directory(folder).rotate(datetime.now(UTC), every=every)
        _print(renewed)
        if not renewed:
            typer.echo("No certificate is due.")


@certs_app.command("show")
def certs_show(folder: Folder) -> None:
    """List the certificates: name, kind, end, and hosts."""
    from outrider.cli.certificates.directory import Directory

    with _sentences():
        directory = Directory(folder)
        authority = directory.authority()
        typer.echo(f"{'ca':<24} {authority.trust_domain:<12} {_end(authority.ends)}")
        _print(directory.issued())


def _require_kind(kind: str) -> None:
    from outrider.mesh.config.fields import nearest
    from outrider.mesh.errors import ConfigError
    from outrider.mesh.security import KINDS

    if kind not in KINDS:
        raise ConfigError(f"{kind} is no kind{nearest(kind, KINDS)}: there are {', '.join(KINDS)}")


def _print(issued: list[Issued]) -> None:
    for each in issued:
        typer.echo(f"{each.name:<24} {each.identity.kind:<12} {_end(each.ends)}  {', '.join(each.hosts)}")


def _end(ends: datetime) -> str:
    word = "expired" if datetime.now(UTC) >= ends else "until"
    return f"{word} {ends:%Y-%m-%d %H:%M} UTC"


@contextmanager
def _sentences() -> Iterator[None]:
    """Ends a block that fails with the sentence and the exit code of its `ConfigError`."""
    from outrider.mesh.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
