"""The clock of the mesh, by a real broker and a clock of the process that is wrong."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from outrider.mesh.bus import Bus
from outrider.mesh.clock import MOST_ERROR_S, MeshClock
from outrider.mesh.telemetry import REGISTRY

from tests.broker import Broker

DAY = 86400.0


@pytest.fixture
async def bus(jetstream: str) -> AsyncIterator[Bus]:
    bus = Bus()
    await bus.connect(jetstream, "test", wait_s=10)
    yield bus
    await bus.close()


@pytest.mark.parametrize("error_s", [DAY, -DAY, 60.0])
async def test_a_wrong_clock_is_noticed_and_the_time_of_the_mesh_is_not_wrong(bus: Bus, error_s: float) -> None:
    clock = MeshClock(bus, lambda: time.time() + error_s)
    assert await clock.measure()
    assert abs(clock() - time.time()) < MOST_ERROR_S
    assert clock.wrong
    shown = REGISTRY.get_sample_value("outrider_clock_error_seconds")
    assert shown == clock.error_s == pytest.approx(error_s, abs=MOST_ERROR_S)


async def test_a_clock_that_jumps_is_no_matter_between_two_measurements(bus: Bus) -> None:
    jump = [0.0]
    clock = MeshClock(bus, lambda: time.time() + jump[0])
    assert await clock.measure()
    assert not clock.wrong
    jump[0] = DAY
    assert abs(clock() - time.time()) < MOST_ERROR_S


async def test_without_a_broker_the_own_clock_counts() -> None:
    broker, bus = Broker(), Bus()
    broker.start()
    await bus.connect(broker.url, "test", wait_s=10)
    broker.kill()
    clock = MeshClock(bus, lambda: 7.0)
    assert not await clock.measure()
    assert clock() == 7.0
    await bus.close()
