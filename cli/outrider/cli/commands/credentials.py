"""The command `outrider credentials`; its work is `outrider.cli.credentials` and `outrider.cli.kubernetes`."""

from __future__ import annotations

import sys
from pathlib import Path

from outrider.cli.credentials import hand_out, repeat
from outrider.cli.kubernetes import write_secrets
from outrider.mesh.errors import ConfigError


def run(secrets: Path, folders: Path, every_s: float | None, prefix: str | None) -> int:
    """Hands out once, or every ``every_s`` seconds, also into the Secrets of a ``prefix``; the exit code."""

    def work() -> None:
        hand_out(secrets, folders)
        if prefix is not None:
            write_secrets(folders, prefix)

    try:
        if every_s is None:
            work()
        else:
            repeat(work, every_s)
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    return 0
