"""Objects by name, as S3 and its kind keep them, and a directory that does the same."""

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
        """The object, or its first ``most`` bytes; None where there is none."""

    def put(self, name: str, data: bytes) -> None:
        """Keeps the object whole, in place of an earlier one, or not at all."""

    def delete(self, name: str) -> None:
        """Removes the object, if there is one."""

    def list(self) -> Iterable[str]:
        """Names of all objects."""


class LocalObjects:
    """An `ObjectStore` in a directory: what is being written has another name until it is whole.

    Raises:
        OSError: the directory cannot be made or written to.
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
        """Takes the directory for this process alone; whether no other has."""
        self._lock = (self._root / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            return False
        return True

    def label(self, name: str) -> str:
        """What the directory is called: ``name``, unless it has a name; only for the one that owns it."""
        path = self._root / "name"
        if path.exists() and (known := path.read_text()):
            return known
        path.write_text(name)
        return name

    def unlock(self) -> None:
        """Ends `lock`."""
        self._lock.close()

    def sweep(self) -> None:
        """Removes what writers that died have left; only for the one that owns the directory."""
        for path in self._root.glob(f"??/*{_TEMPORARY}"):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / name[:2] / name
