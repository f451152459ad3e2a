"""A file to which lines are appended, also after it was moved away."""

from __future__ import annotations

import os
import stat
from collections import deque

STDERR = "stderr"


class LineFile:
    """The file ``name``, made with mode 0600, or standard error for `STDERR`. Several processes may append to one file.

    Attributes:
        torn: whether the file ends in a part of a line, behind which the next line begins anew.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._file = 2 if name == STDERR else self._open()
        self.torn = False

    def write(self, lines: deque[bytes]) -> None:
        """Appends ``lines``, and takes those that are written out of ``lines``. `OSError` where that fails.

        After a line of which only a part was written, the next one begins on a new line.
        """
        self.follow()
        left = memoryview(b"\n" * self.torn + b"".join(lines))
        try:
            while left:
                left = left[os.write(self._file, left) :]
                self.torn = False
        finally:
            self._drop_written(lines, len(left))

    def follow(self) -> None:
        """Makes a new file if the present one was moved or deleted (logrotate); `OSError` if that fails."""
        if self.name != STDERR and self._moved():
            moved, self._file = self._file, self._open()
            os.close(moved)
            self.torn = False

    @property
    def kept(self) -> bool:
        """Whether what is written stays, for other processes to append to: in a regular file that has a name."""
        return self.name != STDERR and stat.S_ISREG(self.state().st_mode)

    def state(self) -> os.stat_result:
        """The state of the present file, or of standard error."""
        return os.fstat(self._file)

    def _drop_written(self, lines: deque[bytes], left: int) -> None:
        """Keeps the last lines, of which ``left`` bytes are to be written."""
        written = sum(map(len, lines)) - left
        while lines and written >= len(lines[0]):
            written -= len(lines.popleft())
        self.torn = self.torn or written > 0

    def _open(self) -> int:
        return os.open(self.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _moved(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self.name), os.fstat(self._file))
        except FileNotFoundError:
            return True
