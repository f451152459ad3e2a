"""A verifier whose requests stand still after as many tokens as a test says, so that no test counts on its pace.

This file is also that verifier's program.
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
"""Tokens, where a test needs some and not many."""

PROGRAM = (sys.executable, "-P", __file__)
"""What to run in place of ``python -m MODULE``, with ``MODULE:SERVICE`` as its first argument."""


class Latch:
    """Where the verifiers of a mesh stand still; ``file`` says it to them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def environment(self) -> dict[str, str]:
        """What `PROGRAM` has to be started with."""
        return {_FILE: str(self._file)}

    def set(self, tokens: int, pace_s: float = 0.0) -> None:
        """No request generates more than ``tokens`` from now on, and no step takes less than ``pace_s``."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{tokens} {pace_s}")
        new.replace(self._file)

    def lift(self) -> None:
        """Every request goes on."""
        self._file.unlink(missing_ok=True)

    @contextmanager
    def at(self, tokens: int, pace_s: float = 0.0) -> Iterator[None]:
        """`set` for as long as the block lasts."""
        self.set(tokens, pace_s)
        try:
            yield
        finally:
            self.lift()


def main() -> None:
    """The verifier. A step leaves out the sequences that stand still; calls, prompts and deadlines go on."""
    from outrider.mesh.service import run
    from outrider.verifier.scheduling.scheduler import Plan, Scheduler

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
