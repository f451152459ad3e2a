"""The command `outrider audit`: checks of audit logs and usage logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

audit_app = typer.Typer(help="Audit logs and usage logs: whether anybody changed them.", no_args_is_help=True)

BROKEN, UNREADABLE = 1, 2
"""Exit codes: a line does not follow the line before it; a file cannot be read."""


@audit_app.callback()
def _group() -> None:
    """Audit logs and usage logs: whether anybody changed them."""


@audit_app.command("verify")
def audit_verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of one log, the oldest first.")],
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="HASH", help="Require the line of this hash, printed earlier; repeatable."),
    ] = None,
) -> None:
    """Follow the chain of a log; exit code 1 at the first line that was removed, changed, added or moved.

    The file NAME.head has the newest line: one that is cut off is missed as long as nobody changes that file as well.
    """
    raise typer.Exit(verify(files, expect or []))


def verify(files: Sequence[Path], expected: Sequence[str]) -> int:
    """Prints each chain's lines and the hash of its last one, or the first break; returns the exit code."""
    from outrider.mesh.telemetry.chained.head import SUFFIX, stored_head
    from outrider.mesh.telemetry.chained.reader import ChainBroken, ChainReader

    reader = ChainReader()
    try:
        head = stored_head(str(files[-1]))  # first: processes append meanwhile
        for file in files:
            with file.open("rb") as lines:
                reader.read(str(file), (line.rstrip(b"\n") for line in lines))
    except ChainBroken as broken:
        return _fail(str(broken), BROKEN)
    except OSError as error:
        return _fail(f"{error.filename} cannot be read: {error.strerror}", UNREADABLE)
    for chain in reader.chains:
        gap = f"; lines 1 to {chain.first - 1} are in an older file, or gone" if chain.first > 1 else ""
        typer.echo(f"{chain.name}: lines {chain.first} to {chain.last}, the last is {chain.head}{gap}")
    if reader.unreadable:
        typer.echo(f"{reader.unreadable} lines are no records, and are left out")
    if head is None:
        typer.echo(f"there is no {files[-1]}{SUFFIX}, which has the newest line: lines at the end may be cut off")
    elif head.hash and head.hash not in reader.hashes:
        return _fail(
            f"line {head.serial} of {head.chain}, the newest, is missing: the end was cut off, or is in another file",
            BROKEN,
        )
    missing = [each for each in expected if each not in reader.hashes]
    return _fail(f"no line has the hash {missing[0]}: the log was changed or cut off", BROKEN) if missing else 0


def _fail(why: str, code: int) -> int:
    print(f"outrider: {why}", file=sys.stderr)
    return code
