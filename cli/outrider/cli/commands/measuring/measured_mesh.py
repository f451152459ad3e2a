"""The mesh that a command measures: a running one, or one that it starts."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from outrider.cli.commands.machine.up import running_mesh
from outrider.cli.processes.child import Child
from outrider.cli.processes.options import UpOptions
from rich.status import Status


@contextlib.asynccontextmanager
async def measured_mesh(url: str | None, mesh: UpOptions, status: Status) -> AsyncIterator[str]:
    """The given URL, or the URL of a mesh started here; ``status`` shows the start."""
    if url:
        yield url
        return
    async with running_mesh(mesh, _Progress(status)) as started:
        yield started


class _Progress:
    """Shows the start of a mesh in the status line, and the death of a process above it."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def ready(self, child: Child, address: str) -> None:
        """Shows that a process is ready."""
        self._status.update(f"starting the mesh: {child.spec.kind} is ready")

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        """Prints that a process died, since the figures then include its restart."""
        self._status.console.print(f"{child.spec.kind} died (exit code {code}); it is started again")

    def report(self, line: str) -> None:
        """Shows which processes are waited for."""
        self._status.update(f"starting the mesh: {line}")
