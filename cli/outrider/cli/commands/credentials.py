"""The command `outrider credentials`; its work is `outrider.cli.credentials`."""

from __future__ import annotations

import sys
from pathlib import Path

from outrider.cli.credentials import hand_out, keep_handing_out
from outrider.mesh.errors import ConfigError


def run(secrets: Path, folders: Path, every_s: float | None) -> int:
    """Hands out once, or every ``every_s`` seconds; the exit code."""
    try:
        if every_s is None:
            hand_out(secrets, folders)
        else:
            keep_handing_out(secrets, folders, every_s)
    except ConfigError as error:
        print(f"outrider: {error}", file=sys.stderr)
        return error.exit_code
    return 0
