"""A file to which lines are appended, also after it was moved away."""

from __future__ import annotations

import os

STDERR = "stderr"


class LineFile:
    """The file ``name``, made with mode 0600, or standard error for `STDERR`. Several processes may append to one file.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._file = 2 if name == STDERR else self._open()
        self._torn = False

    def write(self, line: bytes) -> None:
        """Appends ``line``; if the file was moved or deleted (logrotate), to a new one. `OSError` where that fails.

        After a line of which only a part was written, the next one begins on a new line.
        """
        if self.name != STDERR and self._moved():
            moved, self._file = self._file, self._open()
            os.close(moved)
            self._torn = False
        left = b"\n" + line if self._torn else line
        while left:
            left = left[os.write(self._file, left) :]
            self._torn = bool(left)

    def _open(self) -> int:
        return os.open(self.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _moved(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self.name), os.fstat(self._file))
        except FileNotFoundError:
            return True
