"""Watches for processes that live and are not heard: they load a model, or their event loop stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from outrider.cli.processes.child import Child
from outrider.cli.processes.keeper import ProcessEvents, ProcessKeeper
from outrider.mesh.registry import Member
from outrider.mesh.registry.members import TIMES

KINDS = ("tokenizer",)
"""Kinds that are replaced: their processes hold nothing that a new one does not have in a second."""
SILENCE_S = 5.0
"""Seconds without a sign of life after which a process is replaced."""
STARTS_EVERY_S = 30.0
_END_S = 5.0
_EVERY_S = 0.5


async def tell_of_starts(
    keepers: Callable[[], Sequence[ProcessKeeper]], events: ProcessEvents, every_s: float = STARTS_EVERY_S
) -> None:
    """Tells until cancelled, every ``every_s`` seconds, which processes have started and are not ready, and since when.

    ``keepers`` are those of all services, at each call.
    """
    while True:
        await asyncio.sleep(every_s)
        now, children = time.monotonic(), [keeper.child for keeper in keepers() if not keeper.stopping]
        late = [child for child in children if child and child.pid and not child.ready.is_set()]
        since = [f"{child.instance} for {now - child.began:.0f} s (log: {child.spec.log.name})" for child in late]
        if since:
            events.report(f"Waiting for {', '.join(since)}")


class Silence:
    """Ends processes of `KINDS` that the registry misses though they run; their keepers start others.

    Args:
        keepers: those of all services, at each call.
        members: the members of a kind that the registry hears. It misses none while it cannot hear itself.
        events: gets a line for each process that is ended.
    """

    def __init__(
        self,
        keepers: Callable[[], Sequence[ProcessKeeper]],
        members: Callable[[str], Sequence[Member]],
        events: ProcessEvents,
    ) -> None:
        self._keepers, self._members, self._events = keepers, members, events
        self._since: dict[Child, float] = {}

    async def watch(self) -> None:
        """Watches until cancelled."""
        while True:
            now, missed = time.monotonic(), self._missed()
            self._since = {child: self._since.get(child, now) for child in missed}
            late = [child for child, since in self._since.items() if now - since > SILENCE_S - TIMES.silence_s]
            await asyncio.gather(*map(self._end, late))
            await asyncio.sleep(_EVERY_S)

    def _missed(self) -> list[Child]:
        heard = {member.instance for kind in KINDS for member in self._members(kind)}
        kept = [keeper for keeper in self._keepers() if keeper.spec.kind in KINDS and not keeper.stopping]
        children = [keeper.child for keeper in kept]
        return [child for child in children if child and child.ready.is_set() and child.instance not in heard]

    async def _end(self, child: Child) -> None:
        self._events.report(f"{child.instance} was not heard for {SILENCE_S:g} s, and is ended")
        await child.stop(_END_S)
