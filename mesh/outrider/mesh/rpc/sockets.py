"""Unix sockets, by which processes of one host and one user reach each other without TCP."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
from pathlib import Path

from outrider.mesh.errors import ConfigError
from outrider.mesh.own_directory import is_private, own_directory

AUTO = "auto"
_SUFFIX = ".sock"
_MOST_PATH_BYTES = 100
"""Most bytes of a socket's path; Linux allows 107 (unix(7))."""


def new_socket(setting: str, *, private: bool = False) -> Path | None:
    """The path of a new socket by the setting ``sockets``; None for no socket.

    With ``private``, a directory that the setting names has to keep other users out, as `AUTO`'s always does.

    Raises:
        ConfigError: the setting names a directory that cannot be used.
    """
    if not setting:
        return None
    try:
        directory = own_directory() if setting == AUTO else Path(setting)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / f"{secrets.token_hex(8)}{_SUFFIX}"
        _check(path, private=private or setting == AUTO)
        _remove_stale(directory)
    except OSError as error:
        if setting == AUTO:
            return None
        raise ConfigError(f"sockets = {setting!r}: {error.strerror}") from None
    return path


def local_target(address: str, path: object) -> str:
    """The target for gRPC: the socket at ``path`` if a process of this host listens there, else ``address``."""
    return f"unix:{path}" if isinstance(path, str) and path and _listens(Path(path)) else address


def _check(path: Path, *, private: bool) -> None:
    """`OSError` if there cannot be a socket at ``path``, or if other users could replace it."""
    if len(os.fsencode(path)) > _MOST_PATH_BYTES:
        raise OSError(0, f"a path of more than {_MOST_PATH_BYTES} bytes")
    if private and not is_private(path.parent):
        raise OSError(0, "a directory that others may use")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OSError(0, "a directory that cannot be written to")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _remove_stale(directory: Path) -> None:
    """Removes sockets of processes that were killed."""
    for path in directory.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            if probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED:
                path.unlink()
