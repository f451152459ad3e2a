"""The directory in which processes of one user of this host find each other."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

_HOST = "127.0.0.1"


def own_directory() -> Path:
    """Its path, below `XDG_RUNTIME_DIR` or the temporary directory; it may not exist yet."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "outrider" if runtime else Path(tempfile.gettempdir()) / f"outrider-{os.getuid()}"


def is_private(directory: Path) -> bool:
    """Whether ``directory`` belongs to this user and is closed to others; `OSError` if there is none."""
    status = directory.stat()
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


class Links:
    """Links `<prefix>-<host>-<port>`: the directory in which what runs at an address keeps files for its user."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def remember(self, url: str, directory: Path) -> None:
        """Notes the directory of what runs at ``url``, if this user has a private place for that."""
        with suppress(OSError):
            own_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_private(own_directory()):
                link = self._link(url)
                link.unlink(missing_ok=True)
                link.symlink_to(directory.resolve())

    def forget(self, url: str) -> None:
        """Ends `remember`."""
        with suppress(OSError):
            self._link(url).unlink(missing_ok=True)

    def find(self, url: str) -> Path | None:
        """The directory of what runs at ``url``, if this user runs it."""
        with suppress(OSError, ValueError):
            if is_private(own_directory()) and (directory := self._link(url)).is_dir():
                return directory.resolve()
        return None

    def _link(self, url: str) -> Path:
        parts = urlsplit(url.partition(",")[0])
        host = _HOST if parts.hostname == "localhost" else parts.hostname
        return own_directory() / f"{self._prefix}-{host}-{parts.port}"
