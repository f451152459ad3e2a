"""What a process hears from a keeper, and directly while there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from outrider.mesh.bus import Bus, Callback, Message, Subscription
from outrider.mesh.registry.members import PATIENCE_S
from outrider.mesh.tasks import Tasks

_LOST_S = 1.4
"""Seconds without a keeper after which no takeover is waited for any longer."""


class Relayed:
    """A subscription to what a keeper sends, and subscriptions that stand in for it while no keeper is heard.

    So processes hear each other directly in a small mesh, beside processes of a version without keepers, and after the
    death of a keeper.

    Args:
        subject: what the keeper sends, at every tick.
        heard: called with each message of the keeper.
        direct: callbacks by subject, called while no keeper is heard.
        again: called when a keeper, or a member by itself, can be heard after the keeper's silence.
    """

    def __init__(
        self,
        bus: Bus,
        tasks: Tasks,
        subject: str,
        heard: Callback,
        direct: Mapping[str, Callback],
        again: Callable[[], None],
    ) -> None:
        self._bus, self._spawn = bus, tasks.spawn
        self._subject, self._heard, self._direct, self._again = subject, heard, direct, again
        self._subscriptions: list[Subscription] = []
        self._last = float("-inf")
        self._kept = False

    def hears(self, now: float) -> bool:
        """Whether what this process hears is complete: from a keeper that is not silent, or directly."""
        return not self._kept or now - self._last < PATIENCE_S

    async def start(self) -> None:
        """Listens to both."""
        await self._bus.subscribe(self._subject, self._on_relayed)
        await self._listen()

    def tick(self, now: float) -> None:
        """Listens directly if the keeper is lost at ``now``; without a broker no keeper can be heard."""
        if not self._bus.connected:
            self._last = max(self._last, now - PATIENCE_S)
        if self._kept and now - self._last > _LOST_S:
            self._kept = False
            self._spawn(self._listen(), "registry subscriptions")
            self._again()

    async def _on_relayed(self, message: Message) -> None:
        now = time.monotonic()
        if self._kept and not self.hears(now):
            self._again()
        self._last = now
        if not self._kept:
            self._kept = True
            self._spawn(self._stop_listening(), "registry subscriptions")
        if (result := self._heard(message)) is not None:
            await result

    async def _listen(self) -> None:
        for subject, callback in self._direct.items():
            if not self._kept:
                self._subscriptions.append(await self._bus.subscribe(subject, callback))

    async def _stop_listening(self) -> None:
        while self._kept and self._subscriptions:
            await self._subscriptions.pop().unsubscribe()
