"""Virtual environments of peers, each created once and kept."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

MADE = "outrider-made"
"""File in a complete environment; lists the installed packages."""


class PeerMissing(Exception):
    """A peer cannot be installed or run; the message says why."""


def make(
    environment: Path, packages: Sequence[str], unwanted: Sequence[str] = (), build: Mapping[str, str] | None = None
) -> Path:
    """The Python of an environment with ``packages``; creates the environment unless it has just these.

    Args:
        environment: directory of the environment.
        packages: packages for pip, ``name==version``.
        unwanted: dependencies to uninstall afterwards.
        build: environment variables for packages that pip compiles.

    Raises:
        PeerMissing: pip failed.
    """
    python, marker, listing = environment / "bin" / "python", environment / MADE, "\n".join(packages)
    if marker.is_file() and marker.read_text() == listing:
        return python
    print(f"Making {environment} with {', '.join(packages)}: this takes minutes", file=sys.stderr)
    venv.create(environment, with_pip=True)
    _run([python, "-m", "pip", "install", "--quiet", *packages], build)
    if unwanted:
        _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *unwanted])
    marker.write_text(listing)
    return python


def versions(environment: Path, *names: str) -> list[str]:
    """Packages of an environment whose names begin with one of ``names``, ``name==version``."""
    command: list[str | Path] = [environment / "bin" / "python", "-m", "pip", "freeze"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line for line in listing.stdout.splitlines() if line.startswith(names)]


def _run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
    try:
        subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **(environment or {})})
    except subprocess.CalledProcessError as error:
        raise PeerMissing(f"pip ended with {error.returncode}: see its output above") from error
