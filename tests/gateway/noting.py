"""A verifier that writes each request that its engine takes to its log.

`python -m tests.gateway.noting` starts the verifier. Flags are those of `python -m outrider.verifier`.
"""

from __future__ import annotations

import os
from dataclasses import fields
from math import isfinite
from typing import Any, ClassVar

from outrider.engine.decode.engine import Engine
from outrider.engine.decode.outcome import QueuePlace
from outrider.engine.requests.sequence import Request
from outrider.engine.target import Parts
from outrider.mesh.service import run
from outrider.verifier.service import VerifierService

MARK = "the engine takes "
"""Begins a line of the log about a request."""
PROGRAM = "tests.gateway.noting:Noting"

_EACH_DIFFERS = ("id", "trace", "grammar", "thinking")
"""Fields of a request that are not written. The text of the grammar and the marks of thoughts are in ``parameters``."""


class NotingEngine(Engine):
    """Prints requests before it takes them."""

    def submit(self, request: Request) -> QueuePlace:
        """Takes a request."""
        shown = {field.name: _shown(getattr(request, field.name)) for field in fields(request)}
        noted = {name: value for name, value in shown.items() if name not in _EACH_DIFFERS}
        # One write with a line's end before it: another thread's log line may be half written.
        os.write(1, f"\n{MARK}{noted}\n".encode())
        return super().submit(request)


def _shown(value: Any) -> Any:
    """``value``; of a time, which no two requests share, whether it is finite."""
    if isinstance(value, float):
        return isfinite(value)
    return sorted(value) if isinstance(value, frozenset) else value


class Noting(VerifierService):
    """Notes what its engine takes."""

    parts: ClassVar[Parts] = Parts(engine=NotingEngine)


if __name__ == "__main__":
    run(Noting)
