"""What a stage found, a line of JSON for each finding, written when it is found."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MOST_DETAIL = 600


class Report:
    """The findings of one stage.

    Args:
        stage: name of the stage.
        path: file to which lines are added.
        seconds: that the stage should take at most.
    """

    def __init__(self, stage: str, path: Path, seconds: float) -> None:
        self._stage, self._path = stage, path
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until the stage should end."""
        return self._end - time.monotonic()

    def check(self, name: str, passed: bool, detail: str = "") -> None:
        """Adds a check that passed or failed."""
        self._add(kind="check", name=name, passed=passed, detail=detail[-_MOST_DETAIL:])

    def figures(self, table: str, **row: str | int | float) -> None:
        """Adds a row of a table."""
        self._add(kind="figures", table=table, row=row)

    def note(self, text: str) -> None:
        """Adds a sentence, such as what was left out and why."""
        self._add(kind="note", text=text)

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Adds a failed check in place of an exception. After a fault of the device the stage ends."""
        try:
            yield
        except Exception as error:
            self.check(name, False, traceback.format_exc())
            if "CUDA error" in str(error):
                raise SystemExit(f"the device failed in {name}") from error

    def in_time(self, names: list[Any], what: str) -> Iterator[Any]:
        """``names`` for as long as there is time; a note says how many were left out."""
        for index, name in enumerate(names):
            if self.left() <= 0:
                self.note(f"{len(names) - index} of {len(names)} {what} left out: no time")
                return
            yield name

    def _add(self, **line: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"stage": self._stage, **line}) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of all stages so far; a line that a crash cut off is left out."""
    lines = []
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
