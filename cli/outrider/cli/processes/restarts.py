"""Replaces the services of a running mesh, one process at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from outrider.cli.processes.keeper import ProcessEvents, ProcessKeeper
from outrider.cli.processes.placement import SettingsByKind, own_ports
from outrider.native.share import free_memory

STOP_ORDER = ("gateway", "verifier", "proposer", "tokenizer", "kvcache")
"""Each kind needs the kinds after it, and NATS, to finish its work in flight."""
LOADED = ("verifier", "proposer")
"""Kinds whose processes take the memory of a model."""


class RestartFailed(Exception):
    """A new process did not get ready; the processes that it and others were to replace go on."""


class RollingRestart:
    """Replaces ``services``: for each process a new one starts, gets ready, and then the old one drains.

    A process that cannot run beside its successor drains first. Callees come before their callers, so that new services
    answer old ones.

    Args:
        services: the keepers of all processes; new ones take the place of old ones there.
        patience_s: seconds that each kind may take to drain and end.
        events: gets a line for each replacement, and the events of new processes.

    Attributes:
        candidate: the new process that is not ready yet.
    """

    def __init__(self, services: list[ProcessKeeper], patience_s: Mapping[str, float], events: ProcessEvents) -> None:
        self._services, self._patience_s, self._events = services, patience_s, events
        self.candidate: ProcessKeeper | None = None

    async def run(self) -> None:
        """Replaces all services; ends early, with a line, if a new process does not get ready."""
        try:
            for kind in reversed(STOP_ORDER):
                for keeper in [keeper for keeper in self._services if keeper.spec.kind == kind]:
                    await self._replace(keeper)
            self._events.report("All services are new.")
        except RestartFailed as error:
            self._events.report(f"The restart ends here, and the processes before it go on: {error}")

    async def _replace(self, old: ProcessKeeper) -> None:
        why = old.spec.alone or _lacks_memory(old)
        if not why:
            new = await self._start_beside(old)
            self._services.insert(self._services.index(old), new)
            return await self._retire(old)
        self._events.report(f"{old.spec.kind}: the old process ends before the new one starts: {why}")
        await self._retire(old)
        new = ProcessKeeper(old.spec, self._events)
        self._services.append(new)
        await new.was_ready.wait()

    async def _start_beside(self, old: ProcessKeeper) -> ProcessKeeper:
        """A new process that is ready; raises `RestartFailed` if its first start fails."""
        self.candidate = new = ProcessKeeper(old.spec, self._events)
        events = [asyncio.ensure_future(event.wait()) for event in (new.was_ready, new.failed)]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            if not new.was_ready.is_set():
                raise RestartFailed(new.child.end_reason() if new.child else "")
            return new
        finally:
            for event in events:
                event.cancel()
            self.candidate = None
            if not new.was_ready.is_set():
                new.kill()

    async def _retire(self, old: ProcessKeeper) -> None:
        name, began = old.child.instance if old.child else old.spec.kind, time.monotonic()
        await old.stop(self._patience_s[old.spec.kind])
        self._services.remove(old)
        self._events.report(f"{name} was gone {time.monotonic() - began:.1f} s after SIGTERM")


def alone(kind: str, settings: SettingsByKind) -> str:
    """Why a second process of ``kind`` cannot run beside the first; empty if it can."""
    values = settings[kind]
    if kind == "gateway" and not values["share_port"].value:
        return "gateway.share_port is false"
    if taken := [key for key in own_ports(kind) if values[key].value]:
        return f"{kind}.{taken[0]} is a port for one process"
    if kind == "kvcache" and set(values["tiers"].value) != {"memory"}:
        return "the new one reads the pages that the old one leaves behind"
    if kind in LOADED and values["device"].value != "cpu":
        return f"both would share the memory of {values['device'].value}"
    return ""


def _lacks_memory(keeper: ProcessKeeper) -> str:
    """Why the machine has no room for a second process like that of ``keeper``; empty if it has."""
    if keeper.spec.kind not in LOADED or keeper.child is None:
        return ""
    try:
        taken, free = _resident(keeper.child.pid), free_memory()
    except (OSError, StopIteration):
        return ""
    return f"a second one takes {taken >> 20} MiB, and {free >> 20} MiB are free" if free < taken else ""


def _resident(pid: int) -> int:
    """Bytes of memory that a process has filled."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) << 10
