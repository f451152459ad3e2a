"""Several gateways and one limit, over a real broker."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

import pytest
from outrider.gateway.admission.account import LEASE_S, SKEW_S
from outrider.gateway.admission.limit_store import LimitReached, LimitStore
from outrider.mesh.errors import Unavailable

from tests.broker import Broker
from tests.gateway.admission.faults import TOKENS, FaultyGateways
from tests.gateway.admission.limits import (
    DAY,
    Clock,
    drain,
    eventually_answers,
    gateway_store,
    refused,
    streams,
    tokens,
)

LIMIT = 20_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def pair(jetstream: str, clock: Clock) -> AsyncIterator[tuple[LimitStore, LimitStore]]:
    async with gateway_store(jetstream, clock) as one, gateway_store(jetstream, clock) as other:
        yield one, other


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker()
    broker.start("--jetstream", "--store_dir", str(tmp_path))
    yield broker
    broker.kill()


@pytest.fixture
def bucket() -> str:
    return token_hex(4)


async def test_gateways_under_load_admit_all_of_a_limit_and_never_more(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    used: Counter[int] = Counter()
    reserved: Counter[int] = Counter()

    async def client(store: LimitStore, seed: int) -> None:
        chance, refusals = random.Random(seed), 0
        while refusals < 3:
            asked, window = chance.randint(1, 60), int(clock() // 60)
            try:
                reservation = await store.reserve([tokens(bucket, asked, LIMIT)])
            except LimitReached:
                refusals += 1
                await asyncio.sleep(0.001)
                continue
            reserved[window] += asked
            assert reserved[window] + used[window] <= LIMIT
            await asyncio.sleep(0)
            spent = chance.randint(asked // 2, asked)
            reservation.settle([spent])
            reserved[window] -= asked
            used[window] += spent

    for _ in range(3):
        await asyncio.gather(*(client(store, seed) for seed in range(4) for store in pair))
        clock.now += 60
    assert len(used) == 3
    assert all(0.99 * LIMIT <= tokens_used <= LIMIT for tokens_used in used.values()), used


async def test_a_slice_is_used_without_the_broker_and_then_the_gateway_refuses_until_it_is_back(
    own_broker: Broker, tmp_path: Path, bucket: str, clock: Clock
) -> None:
    async with gateway_store(own_broker.url, clock) as store:
        assert not await refused(store, tokens(bucket, 1))
        own_broker.kill()
        served = 1
        with suppress(Unavailable):
            while not await refused(store, tokens(bucket, 1)):
                served += 1
        assert 1 < served < 100
        own_broker.start("--jetstream", "--store_dir", str(tmp_path))
        await eventually_answers(store)
        assert served + await drain(store, tokens(bucket, 1)) == 1000


async def test_what_a_dead_gateway_held_is_spent_until_the_period_ends_and_no_longer(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    dead, alive = pair
    await dead.reserve([tokens(bucket, 400)])
    left = await drain(alive, tokens(bucket, 1))
    assert 600 - 1000 // 64 <= left <= 600
    clock.now += 60
    assert await drain(alive, tokens(bucket, 1)) == 1000


async def test_streams_of_a_dead_gateway_come_back_when_its_lease_ends(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    dead, alive = pair
    await drain(dead, streams(bucket))
    assert await drain(alive, streams(bucket)) == 0
    clock.now += LEASE_S
    assert await drain(alive, streams(bucket)) == 0
    clock.now += SKEW_S
    assert await drain(alive, streams(bucket)) == 4


async def test_streams_of_a_gateway_that_lives_are_its_own_for_as_long_as_they_last(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    one, other = pair
    reservation = await one.reserve([streams(bucket, 4)])
    for _ in range(10):
        clock.now += LEASE_S / 3
        await one.upkeep()
    assert await refused(other, streams(bucket))
    reservation.settle([0])
    await one.upkeep()
    await one.upkeep()
    clock.now += 1
    assert not await refused(other, streams(bucket, 4))


async def test_a_gateway_whose_lease_was_lost_keeps_its_streams_and_begins_no_others(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    silent, other = pair
    lost = await silent.reserve([streams(bucket, 3)])
    assert not await refused(silent, streams(bucket))
    clock.now += LEASE_S + SKEW_S
    taken = await other.reserve([streams(bucket, 2)])
    await silent.upkeep()
    assert await refused(silent, streams(bucket))
    taken.settle([0])
    await other.upkeep()
    await other.upkeep()
    clock.now += 1
    assert not await refused(silent, streams(bucket))
    lost.settle([0])


async def test_what_nobody_asks_for_any_more_goes_to_the_other_gateways(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    one, other = pair
    (await one.reserve([tokens(bucket, 900)])).settle([0])
    assert await drain(other, tokens(bucket, 1)) < 200
    await one.upkeep()
    await one.upkeep()
    clock.now += 1
    await drain(other, tokens(bucket, 1))
    assert await refused(one, tokens(bucket, 1))
    clock.now += 60
    await one.reserve([tokens(bucket, 500)])
    await one.close()
    assert await drain(other, tokens(bucket, 1)) == 500


async def test_what_is_too_little_here_and_there_is_enough_together(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    one, other = pair
    for store in pair:
        await store.reserve([tokens(bucket, 450)])
        (await store.reserve([tokens(bucket, 40)])).settle([0])
    assert await refused(one, tokens(bucket, 101))
    assert not await refused(other, tokens(bucket, 100))


async def test_a_broker_that_freezes_in_the_middle_of_a_write_costs_nothing_and_gives_nothing(
    own_broker: Broker, bucket: str, clock: Clock
) -> None:
    async with gateway_store(own_broker.url, clock) as one, gateway_store(own_broker.url, clock) as other:
        granted = 0
        for store in (one, other):
            granted += not await refused(store, tokens(bucket, 1))
        own_broker.freeze()
        asking = [asyncio.create_task(store.reserve([tokens(bucket, 100)])) for store in (one, other)]
        done, _ = await asyncio.wait(asking)
        assert all(isinstance(task.exception(), Unavailable) for task in done)
        own_broker.thaw()
        for store in (one, other):
            await eventually_answers(store)
            granted += await drain(store, tokens(bucket, 1))
        granted += await drain(one, tokens(bucket, 1))
    assert granted == 1000


async def test_upkeep_between_two_requests_that_wait_leaves_their_slices_in_one_place(
    pair: tuple[LimitStore, LimitStore], bucket: str
) -> None:
    one, other = pair
    await other.reserve([tokens(bucket, 900)])
    refusal, _, granted = await asyncio.gather(
        refused(one, tokens(bucket, 200)), one.upkeep(), refused(one, tokens(bucket, 60))
    )
    assert (refusal, granted) == (True, False)
    assert await refused(one, tokens(bucket, 60))


async def test_a_request_at_the_very_end_of_a_minute_is_served_out_of_the_next_one(
    pair: tuple[LimitStore, LimitStore], bucket: str, clock: Clock
) -> None:
    one, other = pair
    assert not await refused(other, tokens(bucket, 1000))
    asking = asyncio.create_task(one.reserve([tokens(bucket, 10)]))
    await asyncio.sleep(0)
    clock.now += 60
    (status,) = (await asking).statuses
    assert (status.remaining, status.reset_s) == (990, 60)


@pytest.mark.parametrize("seed", range(2))
async def test_no_limit_is_exceeded_whatever_becomes_of_gateways_broker_and_clients(
    own_broker: Broker, tmp_path: Path, bucket: str, clock: Clock, seed: int
) -> None:
    async with FaultyGateways(own_broker, tmp_path, clock, bucket, seed) as gateways:
        await gateways.run(minutes=3)
    assert max(gateways.counted.most.values()) > TOKENS / 2


async def test_one_gateway_with_a_clock_a_day_ahead_locks_no_tenant_out_of_the_others(
    jetstream: str, bucket: str, clock: Clock
) -> None:
    wrong = Clock()
    async with gateway_store(jetstream, clock) as one, gateway_store(jetstream, wrong) as ahead:
        assert not await refused(one, tokens(bucket, 700))
        wrong.now += DAY
        assert await drain(ahead, tokens(bucket, 100)) == 10
        assert not await refused(one, tokens(bucket, 300))
        wrong.now = clock.now
        assert await refused(one, tokens(bucket, 1))
        assert await refused(ahead, tokens(bucket, 1))
        clock.now += 60
        assert not await refused(one, tokens(bucket, 1000))
