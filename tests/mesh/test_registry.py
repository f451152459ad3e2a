"""The registry over a real nats-server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from outrider.mesh.bus import Bus
from outrider.mesh.errors import Unavailable
from outrider.mesh.registry import Member, Registry, State, Times, announce_subject
from outrider.mesh.tasks import Tasks

from tests.broker import Broker
from tests.waiting import eventually


class Peer:
    """A member of the registry without a process."""

    def __init__(self, bus: Bus, registry: Registry, tasks: Tasks) -> None:
        self.bus = bus
        self.registry = registry
        self._tasks = tasks

    async def fall_silent(self) -> None:
        """Disappears as after kill -9."""
        await self._tasks.cancel()

    async def leave(self) -> None:
        """Leaves as after SIGTERM."""
        self.registry.leave()
        await self.bus.close()


Join = Callable[..., Any]


TIMES = Times(*(seconds / 2 for seconds in Times()))
"""Half the real times; the tests of the lifecycle use the real ones."""
OUTAGE_S = TIMES.silence_s + 0.3
"""Seconds of an outage that is longer than a member may be silent."""


@pytest.fixture
async def join(broker: Broker) -> AsyncIterator[Join]:
    async with AsyncExitStack() as stack:

        async def start(kind: str, instance: str, times: Times = TIMES, **status: Any) -> Peer:
            tasks = Tasks()
            bus = Bus()
            await bus.connect(broker.url, instance, wait_s=10)
            registry = Registry(bus, kind, instance, lambda: status, tasks, times)
            registry.address = f"host:{len(instance)}"
            await registry.start()
            registry.set_state(State.READY)
            stack.push_async_callback(tasks.cancel)
            stack.push_async_callback(bus.close)
            return Peer(bus, registry, tasks)

        yield start


def names(members: list[Member]) -> list[str]:
    return [member.instance for member in members]


async def wait_for_names(peer: Peer, kind: str, *wanted: str, timeout: float = 10) -> None:
    await peer.registry.wait_for(kind, lambda members: names(members) == list(wanted), timeout)


async def test_members_see_each_other_whatever_the_order_they_came_in(join: Join) -> None:
    first = await join("verifier", "v1", model="pocket")
    second = await join("gateway", "g1")
    (member,) = await second.registry.wait_for("verifier", bool, timeout=10)
    assert member == Member("verifier", "v1", "host:2", State.READY, {"model": "pocket"})
    await wait_for_names(first, "gateway", "g1")
    assert names(first.registry.members("verifier")) == ["v1"]


async def test_a_newcomer_asks_and_is_told_at_once(join: Join) -> None:
    await join("verifier", "v1", TIMES._replace(announce_every_s=3600))
    newcomer = await join("gateway", "g1")
    await wait_for_names(newcomer, "verifier", "v1")


async def test_a_process_that_is_starting_is_no_member(join: Join, broker: Broker) -> None:
    watcher = await join("gateway", "g1")
    bus = Bus()
    await bus.connect(broker.url, "v1", wait_s=10)
    starting = Registry(bus, "verifier", "v1")
    await starting.start()
    with pytest.raises(Unavailable):
        await watcher.registry.wait_for("verifier", bool, timeout=0.1)
    await join("verifier", "v2")  # it is heard after whatever the other has announced
    await wait_for_names(watcher, "verifier", "v2")
    starting.set_state(State.READY)
    await wait_for_names(watcher, "verifier", "v1", "v2")
    starting.leave()
    await bus.close()


async def test_a_member_that_drains_says_so_and_one_that_leaves_is_gone_at_once(join: Join) -> None:
    patient = TIMES._replace(silence_s=3600)
    watcher, leaver = await join("gateway", "g1", patient), await join("verifier", "v1")
    await wait_for_names(watcher, "verifier", "v1")
    leaver.registry.set_state(State.DRAINING)
    await watcher.registry.wait_for("verifier", lambda members: members[0].state == State.DRAINING, timeout=10)
    await leaver.leave()
    await wait_for_names(watcher, "verifier")


async def test_a_member_that_falls_silent_is_gone(join: Join) -> None:
    watcher, victim = await join("gateway", "g1"), await join("verifier", "v1")
    await wait_for_names(watcher, "verifier", "v1")
    await victim.fall_silent()
    await wait_for_names(watcher, "verifier")


async def test_changes_are_told_until_they_are_no_longer_wanted(join: Join) -> None:
    watcher = await join("gateway", "g1")
    changes: list[list[str]] = []
    forget = watcher.registry.on_change("verifier", lambda members: changes.append(names(members)))
    one = await join("verifier", "v1")
    await wait_for_names(watcher, "verifier", "v1")
    await one.leave()
    await wait_for_names(watcher, "verifier")
    assert changes == [["v1"], []]
    forget()
    await join("verifier", "v2")
    await wait_for_names(watcher, "verifier", "v2")
    assert changes == [["v1"], []]


async def test_a_member_that_tells_something_new_is_told_of(join: Join) -> None:
    watcher = await join("gateway", "g1")
    load = {"running": 0}
    await join("verifier", "v1", load=load)
    await wait_for_names(watcher, "verifier", "v1")
    load["running"] = 7
    await watcher.registry.wait_for("verifier", lambda members: members[0].status["load"]["running"] == 7, timeout=10)


async def test_a_lost_broker_makes_nobody_disappear_but_who_died_meanwhile(join: Join, broker: Broker) -> None:
    watcher = await join("gateway", "g1")
    await join("verifier", "v1")
    victim = await join("verifier", "v2")
    await wait_for_names(watcher, "verifier", "v1", "v2")
    names_seen: list[list[str]] = []
    watcher.registry.on_change("verifier", lambda members: names_seen.append(names(members)))
    broker.kill()
    await victim.fall_silent()
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(broker.start)
    await wait_for_names(watcher, "verifier", "v1", timeout=15)
    assert all("v1" in each for each in names_seen)


async def test_a_frozen_broker_makes_nobody_disappear_but_who_died_meanwhile(join: Join, broker: Broker) -> None:
    watcher = await join("gateway", "g1")
    await join("verifier", "v1")
    victim = await join("verifier", "v2")
    await wait_for_names(watcher, "verifier", "v1", "v2")
    names_seen: list[list[str]] = []
    watcher.registry.on_change("verifier", lambda members: names_seen.append(names(members)))
    broker.freeze()
    await victim.fall_silent()
    await asyncio.sleep(OUTAGE_S)
    broker.thaw()
    await wait_for_names(watcher, "verifier", "v1", timeout=15)
    assert all("v1" in each for each in names_seen)


async def test_a_member_that_comes_back_to_the_broker_later_than_we_was_never_gone(join: Join, broker: Broker) -> None:
    watcher, late = await join("gateway", "g1"), await join("verifier", "v1")
    await wait_for_names(watcher, "verifier", "v1")
    names_seen: list[list[str]] = []
    watcher.registry.on_change("verifier", lambda members: names_seen.append(names(members)))
    broker.kill()
    await late.fall_silent()
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(broker.start)
    await eventually(lambda: watcher.bus.connected and late.bus.connected)
    late.registry.set_state(State.DRAINING)
    await watcher.registry.wait_for("verifier", lambda members: members[0].state == State.DRAINING, timeout=5)
    assert [] not in names_seen


async def test_a_restart_under_the_same_name_takes_the_place_of_the_one_before(join: Join) -> None:
    watcher, old = await join("gateway", "g1"), await join("verifier", "v1", run=1)
    await wait_for_names(watcher, "verifier", "v1")
    await join("verifier", "v1", run=2)
    await watcher.registry.wait_for("verifier", lambda members: members[0].status == {"run": 2}, timeout=10)
    await old.leave()
    await join("verifier", "v2")  # it is heard after the leave
    await wait_for_names(watcher, "verifier", "v1", "v2")
    member = watcher.registry.members("verifier")[0]
    assert member.status == {"run": 2}


async def test_what_is_no_announcement_is_passed_over(join: Join) -> None:
    watcher = await join("gateway", "g1")
    watcher.bus.publish(announce_subject("verifier"), b"\xc1 nonsense")
    await join("verifier", "v1")
    await wait_for_names(watcher, "verifier", "v1")


async def test_an_announcement_on_the_subject_of_another_kind_is_passed_over(join: Join) -> None:
    watcher, verifier = await join("gateway", "g1"), await join("verifier", "v1")
    await wait_for_names(watcher, "verifier", "v1")
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await verifier.bus.subscribe(announce_subject("verifier"), lambda message: heard.put_nowait(message.data))
    forged = (await heard.get()).replace(b"v1", b"v2")
    watcher.bus.publish(announce_subject("proposer"), forged)
    watcher.bus.publish(announce_subject("verifier"), forged.replace(b"v2", b"v3"))
    await wait_for_names(watcher, "verifier", "v1", "v3")
