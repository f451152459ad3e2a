"""Members that other places cannot connect to, over a real nats-server and real servers of gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, State
from outrider.mesh.registry.reach import Reach, complaint, place
from outrider.mesh.rpc import Server
from outrider.mesh.tasks import Tasks

from tests.waiting import eventually

HERE, ELSEWHERE = "here", "elsewhere"
ANY = "0.0.0.0"
"""As an address to connect to, it is this host, and none of the loopback device's."""


@pytest.fixture
async def join(shared_nats: str) -> AsyncIterator[Callable[..., Any]]:
    """Joins a member at a place; a gateway, which looks for verifiers, is returned with its reach."""
    async with AsyncExitStack() as stack:

        async def start(kind: str, instance: str, at: str, address: str = "") -> tuple[Registry, Reach]:
            tasks = Tasks()
            bus = Bus()
            await bus.connect(shared_nats, instance, wait_s=10)
            registry = Registry(bus, kind, instance, lambda: reach.status, tasks)
            reach = Reach(registry, ("verifier",) if kind == "gateway" else (), tasks, at, again_s=0.1)
            registry.address = address
            reach.start()
            await registry.start()
            registry.set_state(State.READY)
            stack.push_async_callback(bus.close)
            stack.push_async_callback(tasks.cancel)
            stack.callback(registry.leave)
            return registry, reach

        yield start


def _lost(reach: Reach) -> list[str]:
    return list(reach.status.get("unreachable", ()))


async def test_a_member_that_announces_the_loopback_device_is_lost_to_other_places_only(join) -> None:
    await join("verifier", "reach-loopback", ELSEWHERE, f"127.0.0.1:{hold_port()}")
    (at_place, here), (_, there) = await join("gateway", "a", HERE), await join("gateway", "b", ELSEWHERE)
    await eventually(lambda: _lost(here) == ["reach-loopback"])
    assert _lost(there) == []
    await eventually(lambda: any("unreachable" in gateway.status for gateway in at_place.members("gateway")))
    told = complaint(at_place.members("gateway"), at_place.members("verifier"))
    assert "a on another host cannot connect to reach-loopback at 127.0.0.1:" in told
    assert told.endswith(": set mesh.host to an address of its machine that other hosts reach")


async def test_a_member_is_lost_until_it_answers_where_it_announces(join) -> None:
    port = hold_port(ANY)
    verifier, _ = await join("verifier", "reach-late", ELSEWHERE, f"{ANY}:{port}")
    gateway, reach = await join("gateway", "c", HERE)
    await eventually(lambda: _lost(reach) == ["reach-late"])
    await eventually(lambda: any("unreachable" in each.status for each in gateway.members("gateway")))
    assert "set mesh.advertise to a host" in complaint(gateway.members("gateway"), verifier.members("verifier"))
    server = Server(ANY, port)
    await server.start()
    await eventually(lambda: not _lost(reach))
    await server.stop(0)


@pytest.mark.parametrize("address", ["nonsense", "a..b:1", "[127.0.0.1:1", f"{ANY}:99999"])
async def test_a_member_that_announces_no_address_is_lost_and_ends_nobody(join, address: str) -> None:
    await join("verifier", "reach-odd", ELSEWHERE, address)
    _, reach = await join("gateway", "f", HERE)
    await eventually(lambda: _lost(reach) == ["reach-odd"])


async def test_a_member_that_leaves_is_not_lost(join) -> None:
    verifier, _ = await join("verifier", "reach-gone", ELSEWHERE, f"127.0.0.1:{hold_port()}")
    _, reach = await join("gateway", "d", HERE)
    await eventually(lambda: _lost(reach) == ["reach-gone"])
    verifier.leave()
    await eventually(lambda: not _lost(reach))


async def test_members_that_answer_are_reached_and_nobody_is_complained_of(join) -> None:
    server = Server(ANY)
    await server.start()
    await join("verifier", "reach-good", ELSEWHERE, f"{ANY}:{server.port}")
    gateway, reach = await join("gateway", "e", HERE)
    await gateway.wait_for("verifier", lambda members: len(members) > 0, 30)
    await join("verifier", "reach-bad", ELSEWHERE, f"127.0.0.1:{hold_port()}")
    await eventually(lambda: _lost(reach) == ["reach-bad"])
    good = [member for member in gateway.members("verifier") if member.instance == "reach-good"]
    assert (len(good), complaint(gateway.members("gateway"), good)) == (1, "")
    await server.stop(0)


def test_processes_of_one_network_namespace_are_at_one_place() -> None:
    assert place() == place()
    assert len(place()) == 12
