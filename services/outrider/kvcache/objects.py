"""An interface to object stores like S3, and an implementation in a directory."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

_TEMPORARY = ".part"


class ObjectStore(Protocol):
    """Whole objects by name. Any method may raise `OSError`."""

    def get(self, name: str, most: int = -1) -> bytes | None:
        """The object, or its first ``most`` bytes; None if there is no such object."""

    def put(self, name: str, data: bytes) -> None:
        """Stores the object atomically; it replaces an earlier one."""

    def delete(self, name: str) -> None:
        """Removes the object, if present."""

    def list(self) -> Iterable[str]:
        """Names of all objects."""


class LocalObjects:
    """An `ObjectStore` in a directory. An unfinished object has a temporary name.

    Raises:
        OSError: the directory cannot be created or written to.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass

    def get(self, name: str, most: int = -1) -> bytes | None:
        """See `ObjectStore`."""
        try:
            with self._path(name).open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """See `ObjectStore`."""
        path = self._path(name)
        path.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(_TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise

    def delete(self, name: str) -> None:
        """See `ObjectStore`."""
        self._path(name).unlink(missing_ok=True)

    def list(self) -> Iterable[str]:
        """See `ObjectStore`."""
        return [path.name for path in self._root.glob("??/*") if path.suffix != _TEMPORARY]

    def lock(self) -> bool:
        """Locks the directory for this process; False if another process has locked it."""
        self._lock = (self._root / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            return False
        return True

    def label(self, name: str) -> str:
        """The stored name of the directory; stores ``name`` if it has none. Only for the process with the lock."""
        path = self._root / "name"
        if path.exists() and (stored := path.read_text()):
            return stored
        path.write_text(name)
        return name

    def unlock(self) -> None:
        """Releases the lock of `lock`."""
        self._lock.close()

    def sweep(self) -> None:
        """Removes temporary files of killed writers. Only for the process with the lock."""
        for path in self._root.glob(f"??/*{_TEMPORARY}"):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / name[:2] / name
