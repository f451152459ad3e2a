"""Starts the processes of a mesh on this machine together, keeps them alive and drains them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from outrider.cli.bus.directory import BusDirectory
from outrider.cli.bus.rights import ADMIN, SUPERVISOR
from outrider.cli.processes.first_key import keep_first_key
from outrider.cli.processes.keeper import ProcessEvents, ProcessKeeper, StartError
from outrider.cli.processes.plan import Plan
from outrider.cli.processes.restarts import STOP_ORDER, RollingRestart
from outrider.cli.processes.secure import keep_fresh
from outrider.cli.processes.silence import Silence, tell_of_starts
from outrider.mesh.access import BROKERS, GATEWAYS
from outrider.mesh.bus import Bus, find_login
from outrider.mesh.errors import OutriderError
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.registry.reach import UNREACHABLE, complaint
from outrider.mesh.tasks import Tasks

NATS_PATIENCE_S = 5.0


class Supervisor:
    """Runs a plan's processes and reads in the registry which of them are ready."""

    def __init__(self, plan: Plan, events: ProcessEvents) -> None:
        self._plan = plan
        self._events = events
        self._tasks = Tasks()
        self._bus = Bus(self._tasks)
        self._registry = Registry(self._bus, SUPERVISOR, f"{SUPERVISOR}-{id(self):x}", tasks=self._tasks)
        self._broker: ProcessKeeper | None = None
        self._killed = self._complained = False
        self._hints = {""}
        self._services: list[ProcessKeeper] = []
        self._restart = RollingRestart(self._services, plan.patience_s, events)
        self._restart_asked = asyncio.Event()

    @property
    def keepers(self) -> list[ProcessKeeper]:
        """Keepers of all processes, NATS first; without a new process that is to replace another."""
        return [*([self._broker] if self._broker else []), *self._services]

    @property
    def _all_services(self) -> list[ProcessKeeper]:
        return [*self._services, *([self._restart.candidate] if self._restart.candidate else [])]

    async def start(self) -> None:
        """Returns when every service has been ready; `StartError` if a service cannot start.

        Services start beside NATS, and wait for it.
        """
        if self._plan.broker.process:
            self._broker = ProcessKeeper(self._plan.broker.process, self._events)
            if self._plan.broker.credentials:
                BROKERS.remember(self._plan.broker.url, self._plan.broker.credentials)
        self._follow_certificates()
        self._services += [ProcessKeeper(spec, self._events) for spec in self._plan.services]
        self._tasks.spawn(tell_of_starts(lambda: self._all_services, self._events), "slow starts")
        await self._unless_failed(self._join())
        await self._unless_failed(self._all_ready())
        await self._note_access()

    async def run(self) -> None:
        """Never returns; `StartError` if a service died and cannot restart."""
        while True:
            await self._unless_failed(self._restart_asked.wait())
            self._restart_asked.clear()
            await self._unless_failed(self._restart.run())

    def ask_to_restart(self) -> None:
        """Replaces all services by new processes, one at a time; NATS stays."""
        self._restart_asked.set()

    async def stop(self) -> None:
        """Drains and ends all processes, NATS last; kills a process that does not end in time."""
        for kind in STOP_ORDER:
            keepers = [keeper for keeper in self._all_services if keeper.spec.kind == kind]
            await asyncio.gather(*(keeper.stop(self._plan.patience_s[kind]) for keeper in keepers))
        if not self._killed:
            self._registry.leave()
            await self._bus.close()
        await self._tasks.cancel()
        if self._broker:
            await self._broker.stop(NATS_PATIENCE_S)
            BROKERS.forget(self._plan.broker.url)
        GATEWAYS.forget(self._plan.url)

    def kill(self) -> None:
        """Ends all processes at once; `stop` then returns without a wait."""
        self._killed = True
        for keeper in [*self.keepers, *self._all_services]:
            keeper.kill()

    async def _join(self) -> None:
        try:
            broker = self._plan.broker
            await self._bus.connect(broker.url, "outrider up", self._plan.nats_wait_s, broker.login, broker.trust)
        except OutriderError as error:
            raise StartError(error.message) from error
        self._note_broker(True)
        self._bus.on_change(self._note_broker)
        for kind in STOP_ORDER:
            self._registry.on_change(kind, self._note_members)
        await self._registry.start()
        silence = Silence(lambda: self._services, self._registry.members, self._events)
        self._tasks.spawn(silence.watch(), "silence")

    def _follow_certificates(self) -> None:
        """Renews certificates that --secure made, and has the broker take new ones."""
        certificates, credentials = self._plan.broker.certificates, self._plan.broker.credentials
        if certificates and credentials:
            certificates.on_change(lambda material: BusDirectory(credentials).reload())
            self._tasks.spawn(certificates.follow(), "certificates")
        if self._plan.secured:
            self._tasks.spawn(keep_fresh(self._plan.secured.authority), "authority")

    async def _note_access(self) -> None:
        """Makes the first key, and notes for commands of this user how the APIs are reached."""
        secured, broker = self._plan.secured, self._plan.broker
        if secured is None:
            return GATEWAYS.forget(self._plan.url)
        try:
            if secured.asks_for_keys:
                login = find_login(str(broker.credentials), ADMIN)
                await keep_first_key(secured.key, broker.url, login, broker.trust)
        except OutriderError as error:
            raise StartError(error.message) from error
        GATEWAYS.remember(self._plan.url, secured.path)

    async def _all_ready(self) -> None:
        await asyncio.gather(*(keeper.was_ready.wait() for keeper in self._services))

    def _note_broker(self, connected: bool) -> None:
        if connected and self._broker and self._broker.child:
            self._broker.note_ready(self._broker.child.instance, self._plan.broker.url.partition("://")[2])

    def _note_members(self, members: list[Member]) -> None:
        self._note_reach(members)
        for member in members:
            if member.state == State.READY:
                address = self._plan.address if member.kind == "gateway" else member.address
                for keeper in self._all_services:
                    keeper.note_ready(member.instance, address, member.status.get("metrics_port", 0))
                self._note_hint(member)

    def _note_hint(self, member: Member) -> None:
        """Tells once what a service of this mesh says about its settings."""
        own = any(keeper.child and keeper.child.instance == member.instance for keeper in self._all_services)
        if own and (hint := str(member.status.get("hint", ""))) not in self._hints:
            self._hints.add(hint)
            self._events.report(hint)

    def _note_reach(self, members: list[Member]) -> None:
        """Tells once if one of ``members``, at another place, cannot connect to a service of this one."""
        if self._complained or not any(UNREACHABLE in member.status for member in members):
            return
        own = {keeper.child.instance for keeper in self._all_services if keeper.child}
        known = [member for kind in STOP_ORDER for member in self._registry.members(kind) if member.instance in own]
        if sentence := complaint(members, known):
            self._complained = True
            self._events.report(sentence)

    async def _unless_failed(self, work: Coroutine[Any, Any, Any]) -> None:
        """Awaits ``work``; raises `StartError` if a process fails for good before ``work`` is done."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                kept = {keeper.task for keeper in self.keepers if not keeper.task.done()}
                await asyncio.wait({task, *kept}, return_when=asyncio.FIRST_COMPLETED)
                for keeper in self.keepers:
                    if keeper.task.done():
                        keeper.task.result()
            task.result()
        finally:
            task.cancel()
