"""The contract of stores of limits, for every installed store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from secrets import token_hex

import pytest
from outrider.gateway.admission.limit_store import LimitReached, LimitStore

from tests.gateway.admission.limits import DAY, STORES, Clock, drain, gateway_store, refused, streams, tokens


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=sorted(STORES))
async def store(request: pytest.FixtureRequest, jetstream: str, clock: Clock) -> AsyncIterator[LimitStore]:
    async with gateway_store(jetstream, clock, request.param) as made:
        yield made


@pytest.fixture
def bucket() -> str:
    return token_hex(4)


async def test_a_limit_is_granted_to_the_last_unit_and_no_further(store: LimitStore, bucket: str) -> None:
    assert await drain(store, tokens(bucket, 10, limit=1005)) == 100
    assert not await refused(store, tokens(bucket, 5, limit=1005))
    assert await refused(store, tokens(bucket, 1, limit=1005))


async def test_a_refusal_says_which_limit_its_value_and_when_to_come_back(
    store: LimitStore, bucket: str, clock: Clock
) -> None:
    clock.now += 12
    await store.reserve([tokens(bucket, 990)])
    with pytest.raises(LimitReached) as caught:
        await store.reserve([tokens(bucket, 11)])
    assert caught.value.message == (
        "tenant test has reached its limit of 1000 tokens per minute: 10 left, 11 asked for; try again in 48 s"
    )
    assert (caught.value.retry_after, caught.value.status.remaining) == (48, 10)


async def test_what_was_reserved_and_not_used_comes_back_at_once(store: LimitStore, bucket: str) -> None:
    reservation = await store.reserve([tokens(bucket, 1000)])
    assert await refused(store, tokens(bucket, 1))
    reservation.settle([300])
    assert not await refused(store, tokens(bucket, 700))
    assert await refused(store, tokens(bucket, 1))


async def test_a_reservation_that_is_settled_twice_comes_back_once(store: LimitStore, bucket: str) -> None:
    first, second = await store.reserve([tokens(bucket, 500)]), await store.reserve([tokens(bucket, 500)])
    first.settle([0])
    first.settle([0])
    assert not await refused(store, tokens(bucket, 500))
    assert await refused(store, tokens(bucket, 1))
    second.settle([500])


async def test_of_several_limits_all_are_taken_or_none(store: LimitStore, bucket: str) -> None:
    await store.reserve([streams(bucket, 4)])
    assert await refused(store, tokens(bucket, 1000), streams(bucket))
    assert not await refused(store, tokens(bucket, 1000))


@pytest.mark.parametrize("period_s", [60, DAY])
async def test_a_new_period_begins_with_the_whole_limit_and_owes_the_last_one_nothing(
    store: LimitStore, bucket: str, clock: Clock, period_s: int
) -> None:
    reservation = await store.reserve([tokens(bucket, 1000, period_s=period_s)])
    clock.now += period_s - 1
    await store.upkeep()
    assert await refused(store, tokens(bucket, 1, period_s=period_s))
    clock.now += 1
    assert await drain(store, tokens(bucket, 100, period_s=period_s)) == 10
    reservation.settle([0])
    assert await refused(store, tokens(bucket, 1, period_s=period_s))


async def test_a_stream_comes_back_when_it_ends_and_never_by_the_clock(
    store: LimitStore, bucket: str, clock: Clock
) -> None:
    reservations = [await store.reserve([streams(bucket)]) for _ in range(4)]
    for _ in range(20):
        clock.now += 5
        await store.upkeep()
        assert await refused(store, streams(bucket))
    reservations[0].settle([0])
    assert not await refused(store, streams(bucket))


async def test_upkeep_takes_nothing_from_what_is_reserved(store: LimitStore, bucket: str, clock: Clock) -> None:
    reservation = await store.reserve([tokens(bucket, 600)])
    for _ in range(5):
        clock.now += 1
        await store.upkeep()
    assert await refused(store, tokens(bucket, 401))
    reservation.settle([100])
    assert not await refused(store, tokens(bucket, 900))


async def test_requests_at_the_same_time_share_the_limit_exactly(store: LimitStore, bucket: str) -> None:
    chance = random.Random(1)
    used = 0

    async def ask() -> None:
        nonlocal used
        asked = chance.randint(1, 40)
        try:
            reservation = await store.reserve([tokens(bucket, asked)])
        except LimitReached:
            return
        await asyncio.sleep(0)
        spent = chance.randint(0, asked)
        reservation.settle([spent])
        used += spent

    for _ in range(20):
        await asyncio.gather(*(ask() for _ in range(20)))
    assert used <= 1000
    assert await drain(store, tokens(bucket, 1)) == 1000 - used


async def test_a_limit_that_is_changed_holds_from_then_on(store: LimitStore, bucket: str, clock: Clock) -> None:
    await store.reserve([tokens(bucket, 500)])
    assert await refused(store, tokens(bucket, 1, limit=400))
    clock.now += 1
    assert await drain(store, tokens(bucket, 100, limit=700)) == 2


async def test_what_is_left_and_for_how_long_is_told(store: LimitStore, bucket: str, clock: Clock) -> None:
    clock.now += 45
    reservation = await store.reserve([tokens(bucket, 100), streams(bucket)])
    left, free = reservation.statuses
    assert (left.remaining, left.reset_s) == (900, 15)
    assert free.remaining == 3


@pytest.mark.parametrize("jump_s", [DAY, -DAY, 30 * DAY])
async def test_a_clock_that_is_wrong_for_a_moment_neither_locks_a_tenant_out_nor_forgets_what_it_used(
    store: LimitStore, bucket: str, clock: Clock, jump_s: float
) -> None:
    await store.reserve([tokens(bucket, 600, period_s=DAY)])
    clock.now += jump_s
    assert not await refused(store, tokens(bucket, 1, period_s=DAY))
    clock.now -= jump_s
    assert await refused(store, tokens(bucket, 401, period_s=DAY))
    assert not await refused(store, tokens(bucket, 400, period_s=DAY))
