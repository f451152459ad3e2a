"""The directory in which processes of one user of this host find each other."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def own_directory() -> Path:
    """Its path, below `XDG_RUNTIME_DIR` or the temporary directory; it may not exist yet."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "outrider" if runtime else Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}"


def is_private(directory: Path) -> bool:
    """Whether ``directory`` belongs to this user and is closed to others; `OSError` if there is none."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
