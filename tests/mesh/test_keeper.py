"""The keeper of a crowd over a real nats-server: who passes on announcements, and what happens when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from outrider.mesh.bus import Bus, Message
from outrider.mesh.registry import TIMES, Registry, State, ask_subject, batch_subject, keeper_subject
from outrider.mesh.registry.keeper import CROWD
from outrider.mesh.tasks import Tasks

from tests.broker import Broker
from tests.waiting import eventually

NAMES = {f"p{number:02}" for number in range(CROWD)}


class Crowd:
    """So many proposers that they have a keeper, and a reader that follows them; they share a connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.bus, self.tasks = Bus(), {name: Tasks() for name in [*NAMES, "reader"]}
        self.keeper = ""
        self.registries: dict[str, Registry] = {}

    async def start(self) -> None:
        await self.bus.connect(self._url, "crowd", wait_s=10)
        await self.bus.subscribe(keeper_subject("proposer"), self._note)
        for name, tasks in self.tasks.items():
            kind, follows = ("gateway", ("proposer",)) if name == "reader" else ("proposer", ())
            self.registries[name] = Registry(self.bus, kind, name, tasks=tasks, follows=follows)
            await self.registries[name].start()
            self.registries[name].set_state(State.READY)

    def _note(self, message: Message) -> None:
        name, processes = msgspec.msgpack.decode(message.data)
        if processes:
            self.keeper = name

    def known(self) -> set[str]:
        return {member.instance for member in self.registries["reader"].members("proposer")}

    async def leave(self, name: str) -> None:
        self.registries[name].leave()
        await self.tasks[name].cancel()


@pytest.fixture
async def crowd(broker: Broker) -> AsyncIterator[Crowd]:
    made = Crowd(broker.url)
    await made.start()
    yield made
    for tasks in made.tasks.values():
        await tasks.cancel()
    await made.bus.close()


async def test_a_crowd_is_known_from_its_keeper_also_after_the_keeper_has_left(crowd: Crowd) -> None:
    await eventually(lambda: crowd.keeper in NAMES and crowd.known() == NAMES)
    first, gone = crowd.keeper, []
    crowd.registries["reader"].on_change("proposer", lambda _: gone.append((NAMES - crowd.known(), crowd.keeper)))
    await crowd.leave(first)
    await eventually(lambda: crowd.known() == NAMES - {first})
    await eventually(lambda: crowd.keeper != first)
    assert gone[0] == ({first}, first), "the keeper itself passes on that it goes"
    assert all(lost <= {first} for lost, _ in gone), "nobody else was lost meanwhile"


async def test_a_newcomer_learns_of_a_crowd_that_changes_nothing(crowd: Crowd) -> None:
    await eventually(lambda: crowd.keeper in NAMES)
    tasks = crowd.tasks["newcomer"] = Tasks()
    newcomer = Registry(crowd.bus, "gateway", "newcomer", tasks=tasks, follows=("proposer",))
    await newcomer.start()
    await newcomer.wait_for("proposer", lambda members: {member.instance for member in members} == NAMES, 10)


async def test_a_process_that_hears_only_a_name_asks_for_the_announcement(crowd: Crowd) -> None:
    await eventually(lambda: crowd.keeper in NAMES and crowd.known() == NAMES)
    asks: list[Message] = []
    await crowd.bus.subscribe(ask_subject("gateway"), asks.append)
    crowd.bus.publish(batch_subject("proposer"), msgspec.msgpack.encode(["p00"]))
    await asyncio.sleep(TIMES.announce_every_s)
    assert not asks
    crowd.bus.publish(batch_subject("proposer"), msgspec.msgpack.encode(["nobody has announced this"]))
    await eventually(lambda: len(asks) == 1)
