"""Watches which processes of a mesh end, and how much memory they take."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from outrider.loadtest.attack.mesh import Mesh

KINDS = ("gateway", "verifier", "tokenizer", "nats")
_EVERY_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessChanges(msgspec.Struct):
    """By kind: process ids before and after, the number that ended, and the largest growth of memory in MiB."""

    before: dict[str, list[int]] = {}
    after: dict[str, list[int]] = {}
    died: dict[str, int] = {}
    grew_mib: dict[str, float] = {}


class Watch:
    """Samples the processes ten times a second."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._died = mesh, Counter[str]()
        self._alive = self._pids()
        self._at_first, self._most = self._memory(), self._memory()
        self.changes = ProcessChanges(before=self._alive)

    def look(self) -> None:
        """Counts processes that ended, and samples the memory of the others."""
        now = self._pids()
        for kind in KINDS:
            self._died[kind] += len(set(self._alive[kind]) - set(now[kind]))
        self._alive = now
        self._most = {kind: max(self._most[kind], size) for kind, size in self._memory().items()}

    def conclude(self) -> None:
        """Fills in the result."""
        self.look()
        self.changes.after, self.changes.died = (
            self._alive,
            {kind: count for kind, count in self._died.items() if count},
        )
        self.changes.grew_mib = {kind: (self._most[kind] - self._at_first[kind]) / (1 << 20) for kind in KINDS}

    def _pids(self) -> dict[str, list[int]]:
        return {kind: self._mesh.pids(kind) for kind in KINDS}

    def _memory(self) -> dict[str, int]:
        return {kind: sum(_resident(pid) for pid in pids) for kind, pids in self._alive.items()}


@asynccontextmanager
async def watching(mesh: Mesh) -> AsyncIterator[ProcessChanges]:
    """Watches ``mesh`` inside the block; the yielded result is complete after the block."""
    watch = Watch(mesh)

    async def look() -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            watch.look()

    task = asyncio.create_task(look())
    try:
        yield watch.changes
    finally:
        task.cancel()
        await asyncio.wait({task})
        watch.conclude()


def _resident(pid: int) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0
