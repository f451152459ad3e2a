"""Where the brokers that `outrider up` runs on this host keep the seeds of their users, for commands of the same user.

The directory of this user has a link for each broker, named by the broker's address.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from outrider.mesh.own_directory import is_private, own_directory

_HOST = "127.0.0.1"


def remember(url: str, directory: Path) -> None:
    """Notes that the users of the broker at ``url`` are in ``directory``, if this user has a private place for that."""
    with suppress(OSError):
        own_directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(own_directory()):
            link = _link(url)
            link.unlink(missing_ok=True)
            link.symlink_to(directory.resolve())


def forget(url: str) -> None:
    """Ends `remember`."""
    with suppress(OSError):
        _link(url).unlink(missing_ok=True)


def find(url: str) -> Path | None:
    """The directory with the users of the broker at ``url``, if `outrider up` of this user runs the broker."""
    with suppress(OSError, ValueError):
        if is_private(own_directory()) and (directory := _link(url)).is_dir():
            return directory.resolve()
    return None


def _link(url: str) -> Path:
    parts = urlsplit(url.partition(",")[0])
    host = _HOST if parts.hostname == "localhost" else parts.hostname
    return own_directory() / f"bus-{host}-{parts.port}"
