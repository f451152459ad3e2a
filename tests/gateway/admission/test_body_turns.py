"""Large bodies of a tenant hold little memory, and take a small part of the event loop's time."""

from __future__ import annotations

import asyncio

import pytest
from outrider.gateway.admission.body_turns import MOST_HELD, MOST_WAIT_S, PAUSE, SMALL, BodyTurns
from outrider.mesh.errors import Overloaded

LARGE = SMALL + 1


class Clock:
    """Processor time: as many seconds pass between two looks at it as the test says."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self._now = seconds, 0.0

    def __call__(self) -> float:
        self._now += self.seconds
        return self._now


async def read(turns: BodyTurns, tenant: str, size: int = LARGE) -> None:
    with turns.arriving(tenant) as arrival:
        arrival.grow(size)
        await arrival.turn()
    await asyncio.sleep(0)


async def test_a_tenant_whose_bodies_are_slow_to_parse_waits_and_others_do_not() -> None:
    turns = BodyTurns(Clock(2 * MOST_WAIT_S / PAUSE))
    await read(turns, "slow")
    with pytest.raises(Overloaded, match="took too long to read") as caught:
        await read(turns, "slow")
    assert (caught.value.retry_after or 0) > MOST_WAIT_S
    await read(turns, "other")
    await read(turns, "slow", SMALL)


async def test_bodies_of_a_tenant_are_parsed_one_after_the_other() -> None:
    turns, order = BodyTurns(Clock(0.01 / PAUSE)), list[str]()

    async def one(name: str) -> None:
        with turns.arriving("t") as arrival:
            arrival.grow(LARGE)
            await arrival.turn()
            order.append(name)
            asyncio.get_running_loop().call_soon(order.append, "parsed")

    await asyncio.gather(*map(one, "abc"))
    assert order == ["a", "parsed", "b", "parsed", "c", "parsed"]


async def test_bodies_that_arrive_hold_so_much_memory_and_no_more() -> None:
    turns = BodyTurns(Clock())
    with turns.arriving("t") as first:
        first.grow(MOST_HELD)
        with turns.arriving("t") as second, pytest.raises(Overloaded, match="64 MiB"):
            second.grow(LARGE)
        with turns.arriving("other") as others:
            others.grow(LARGE)
    await read(turns, "t")
