"""Streams that other gateways can find, and those that they no longer can."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, cast

import httpx
import pytest
from outrider.gateway.abuse import Watch
from outrider.gateway.admission.body_turns import BodyTurns
from outrider.gateway.admission.caller import Caller, OwnedLimits
from outrider.gateway.admission.memory_limits import MemoryStore
from outrider.gateway.admission.reservation import Admission, Counters
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.observer.request_observer import Observers
from outrider.gateway.observer.tenant_labels import TenantLabels
from outrider.gateway.request.in_flight import Flights
from outrider.gateway.routing.job import Job
from outrider.gateway.settings import GatewaySettings
from outrider.gateway.stream.answer import AnswerStream
from outrider.mesh.bus import Bus
from outrider.mesh.errors import NotFound, Unavailable
from outrider.mesh.registry import Registry, State
from outrider.mesh.rpc import Server, close_channels
from outrider.mesh.service import Mesh
from outrider.mesh.tasks import Tasks
from outrider.mesh.telemetry import Telemetry
from outrider.v1.sampling_pb2 import Speculation
from outrider.wire.sampling import SamplingParams
from outrider.wire.tenants import Limits

from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for a mesh to start


@pytest.fixture
async def flights(streaming: Stack) -> AsyncIterator[Flights]:
    """The flights of a gateway without APIs; tests call its methods themselves."""
    tasks, settings = Tasks(), GatewaySettings(nats_url=streaming.broker.url)
    bus = Bus(tasks)
    await bus.connect(streaming.broker.url, "test", wait_s=10)
    registry = Registry(bus, "gateway", "alone", tasks=tasks)
    await registry.start()
    await registry.wait_for("verifier", bool, 240)
    made = Flights(
        Mesh("alone", settings, bus, Server(), registry, Telemetry(None), tasks), settings, Observers(settings, None)
    )
    await made.open()
    yield made
    registry.leave()
    await bus.close()
    await tasks.cancel()
    await close_channels()


async def test_a_stream_is_known_everywhere_before_anybody_is_told_of_it(flights: Flights, other: Gateway) -> None:
    key, caller = Key(Caller().tenant, "known"), Caller()
    served = flights.verifiers.models.find(MODEL, caller.may_use)
    job = Job(key.request, served, [1, 2, 3], SamplingParams(seed=1, max_tokens=8).to_proto(), Speculation(), caller)
    record = Record.of([job], created=1, seed=1, lingers=False, shape=b"")
    flight = await flights.begin(key, [job], record, _admission(Caller(), MemoryStore(Bus())), resumable=True)
    assert flight.recording.recorded
    await flights.end(flight)


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_began_without_the_broker_can_be_resumed_when_it_is_back(
    streaming: Stack, one: Gateway, other: Gateway
) -> None:
    streaming.broker.kill()
    reading = RawStream(one.url)
    task = asyncio.create_task(reading.begin(max_tokens=CONTEXT - 100, n=8))
    try:
        await eventually(lambda: reading.events and "is not recorded for now" in one.process.log.read_text())
    finally:
        streaming.broker.start()
    async with httpx.AsyncClient(timeout=30) as http:

        async def status() -> int:
            async with http.stream("GET", f"{other.url}/v1/streams/{reading.request}") as found:
                return found.status_code

        async def delete() -> int:
            return (await http.delete(f"{other.url}/v1/streams/{reading.request}")).status_code

        async with asyncio.timeout(60):
            while await status() != 200:
                await asyncio.sleep(0.1)
            assert not task.done()
            while await delete() != 204:  # 503 until the broker is back
                await asyncio.sleep(0.1)
    await task


@pytest.mark.usefixtures("halted")
async def test_a_stream_that_is_deleted_while_it_is_being_resumed_is_not_generated_on(
    other: Gateway, flights: Flights
) -> None:
    begun = await RawStream(other.url).begin(enough=5, max_tokens=CONTEXT - 100, stay=True)
    key = Key(Caller().tenant, begun.request)
    found = await flights.catalog.find(key)
    async with httpx.AsyncClient(timeout=30) as http:
        assert (await http.delete(f"{other.url}/v1/streams/{begun.request}")).status_code == 204
    await eventually(lambda: flights.catalog.ledger.why_lacking is None)
    with pytest.raises(NotFound):
        await flights.resume(key, *found, _admission(Caller(), MemoryStore(Bus())))
    assert len(flights) == 0


async def test_a_gateway_that_has_just_joined_calls_no_stream_unknown(flights: Flights) -> None:
    """The broker may have been away just before, and the verifier that has the stream may not be heard yet."""
    key = Key(Caller().tenant, "unheard-of")
    with pytest.raises(Unavailable, match="could not be recorded"):
        await flights.catalog.locate(key)
    await _unknown_at_last(flights, key)


async def test_a_stream_may_be_unrecorded_for_a_while_after_the_broker_is_back(
    streaming: Stack, flights: Flights
) -> None:
    key = Key(Caller().tenant, "begun-elsewhere")
    streaming.broker.kill()
    await eventually(lambda: flights.catalog.trouble)
    streaming.broker.start()
    await eventually(lambda: not flights.catalog.trouble)
    with pytest.raises(Unavailable, match="could not be recorded"):
        await flights.catalog.locate(key)
    await _unknown_at_last(flights, key)


async def test_a_stream_may_be_one_of_a_verifier_that_cannot_be_reached(
    streaming: Stack, flights: Flights, unused_tcp_port: int
) -> None:
    key, tasks = Key(Caller().tenant, "begun-there"), Tasks()
    bus = Bus(tasks)
    await bus.connect(streaming.broker.url, "test", wait_s=10)
    dead = Registry(bus, "verifier", "dead", tasks=tasks)
    dead.address = f"127.0.0.1:{unused_tcp_port}"
    await dead.start()
    dead.set_state(State.READY)
    try:
        await eventually(lambda: flights.verifiers.find("dead"))
        with pytest.raises(Unavailable, match="a verifier that does not answer"):
            await flights.catalog.locate(key)
    finally:
        dead.leave()
        await bus.close()
        await tasks.cancel()
    await eventually(lambda: flights.verifiers.find("dead") is None)
    await _unknown_at_last(flights, key)


class _Unclosable:
    """A stream that cannot be closed without an error."""

    def __init__(self, stream: AnswerStream) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def close(self, *, cancel: bool = True) -> None:
        await self._stream.close(cancel=cancel)
        raise RuntimeError("the connection broke")


async def test_a_flight_gives_its_slots_back_though_its_streams_cannot_be_closed(flights: Flights) -> None:
    caller = Caller(limits=(OwnedLimits("the tenant", "tenant", Limits(concurrent_streams=2)),))
    store, served = MemoryStore(Bus()), flights.verifiers.models.find(MODEL)
    for turn in range(2):
        key = Key(caller.tenant, f"unclosable-{turn}")
        sampling = SamplingParams(seed=1, max_tokens=8).to_proto()
        jobs = [
            Job(f"{key.request}{choice}", served, [1, 2, 3], sampling, Speculation(), caller) for choice in ("", "-1")
        ]
        record = Record.of(jobs, created=1, seed=1, lingers=False, shape=b"")
        flight = await flights.begin(key, jobs, record, _admission(caller, store), resumable=False)
        flight.streams = [cast(AnswerStream, _Unclosable(stream)) for stream in flight.streams]
        with pytest.raises(RuntimeError, match="the connection broke"):
            await flights.end(flight)


async def _unknown_at_last(flights: Flights, key: Key) -> None:
    """Returns once nobody can have the stream any more."""
    async with asyncio.timeout(60):
        while True:
            with suppress(Unavailable):
                try:
                    await flights.catalog.locate(key)
                except NotFound:
                    return
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("coalesce", [False, True], ids=["its own", "shared"])
async def test_a_flight_that_has_ended_leaves_nothing_to_collect(flights: Flights, coalesce: bool) -> None:
    gc.disable()
    try:
        held = await _flown(flights, Key(Caller().tenant, f"freed-{coalesce}"), coalesce)
        await eventually(lambda: all(each() is None for each in held))
    finally:
        gc.enable()


async def _flown(flights: Flights, key: Key, coalesce: bool) -> list[weakref.ref[object]]:
    served = flights.verifiers.models.find(MODEL)
    sampling = SamplingParams(seed=3, max_tokens=8).to_proto()
    job = Job(key.request, served, [1, 2, 3], sampling, Speculation(), Caller(), coalesce=coalesce)
    record = Record.of([job], created=1, seed=3, lingers=False, shape=b"")
    admission = _admission(Caller(), MemoryStore(Bus()))
    flight = await flights.begin(key, [job], record, admission, resumable=True)
    async with aclosing(flight.frames()) as batches:
        async for _ in batches:
            pass
    await flights.end(flight)
    return [weakref.ref(each) for each in (flight, *flight.streams)]


def _admission(caller: Caller, store: MemoryStore) -> Admission:
    return Admission(caller, Counters(store, BodyTurns(), Watch(), TenantLabels([])), {})
