"""A verifier that stops its requests after a number of tokens, so that no test depends on the speed of decoding.

This file is also the verifier's program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from math import inf
from pathlib import Path

_FILE = "LATCH_FILE"
_PAUSE_S = 0.005
FEW = 25
"""A small number of tokens, for tests that need some."""

PROGRAM = (sys.executable, "-P", __file__)
"""The command that replaces ``python -m MODULE``; its first argument is ``MODULE:SERVICE``."""


class Latch:
    """The number of tokens after which the verifiers of a mesh stop; they read it from ``file``."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for `PROGRAM`."""
        return {_FILE: str(self._file)}

    def set(self, tokens: int, pace_s: float = 0.0) -> None:
        """Stops requests after ``tokens`` tokens; makes every step take at least ``pace_s`` seconds."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{tokens} {pace_s}")
        new.replace(self._file)

    def lift(self) -> None:
        """Lets all requests continue."""
        self._file.unlink(missing_ok=True)

    @contextmanager
    def at(self, tokens: int, pace_s: float = 0.0) -> Iterator[None]:
        """`set` inside the block."""
        self.set(tokens, pace_s)
        try:
            yield
        finally:
            self.lift()


def main() -> None:
    """Runs the verifier. A step leaves out stopped sequences; calls, prompts and deadlines continue."""
    from outrider.engine.scheduling.scheduler import Plan, Scheduler
    from outrider.mesh.service import run

    file, module, name = Path(os.environ[_FILE]), *sys.argv.pop(1).split(":")
    service = getattr(import_module(module), name)

    class LatchedScheduler(Scheduler):
        def plan(self) -> Plan:
            made, (most, pace_s) = super().plan(), _read(file)
            moving = [sequence for sequence in made.decoding if sequence.generated < most]
            time.sleep(_PAUSE_S if made.decoding and not moving else pace_s)
            made.decoding = moving
            return made

    run(type("Latched", (service,), {"parts": replace(service.parts, scheduler=LatchedScheduler)}))


def _read(file: Path) -> tuple[float, float]:
    try:
        tokens, pace_s = file.read_text().split()
    except FileNotFoundError:
        return inf, 0.0
    return float(tokens), float(pace_s)


if __name__ == "__main__":
    main()
