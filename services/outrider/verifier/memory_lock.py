"""Verifiers of one machine measure the free memory one after another, so that each sees what the others have taken."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from outrider.mesh.own_directory import is_private, own_directory
from outrider.mesh.telemetry import get_logger

WAIT_S = 120.0
"""Most seconds to wait for another verifier that measures."""
_POLL_S = 0.01

_log = get_logger("verifier")


@contextmanager
def measuring_alone(folder: Path | None = None, wait_s: float = WAIT_S) -> Iterator[None]:
    """Waits for other verifiers of this user on this machine that measure the free memory and then take their pages.

    They meet in a file in ``folder``, by default the user's own directory. Where that is not the user's
    alone, or after ``wait_s`` seconds, the wait ends; the log says so.
    """
    folder = folder or own_directory()
    with ExitStack() as held:
        try:
            _wait_for(held.enter_context(_own_file(folder / "memory.lock")), wait_s)
        except OSError as error:
            _log.warning("free memory is measured beside other verifiers", folder=str(folder), why=str(error))
        yield


@contextmanager
def _own_file(path: Path) -> Iterator[int]:
    """The descriptor of a file of this user; `OSError` for a link, and for a file or folder that others may change."""
    with suppress(FileExistsError):
        path.parent.mkdir(mode=0o700)
    if not is_private(path.parent):
        raise PermissionError(f"{path.parent} is not this user's alone")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to another user")
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, wait_s: float) -> None:
    """Locks the file, when others leave it; `TimeoutError` after ``wait_s`` seconds."""
    until, told = time.monotonic() + wait_s, False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(f"another verifier has measured for {wait_s:g} s") from None
        if not told:
            _log.info("another verifier measures the free memory: this one waits", most_s=wait_s)
            told = True
        time.sleep(_POLL_S)
