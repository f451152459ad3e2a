"""What a verifier that drains does with its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, State
from outrider.mesh.telemetry import REGISTRY
from outrider.v1 import verifier_pb2 as pb
from outrider.verifier.rpc.departure import SETTLE_S
from outrider.wire.frames import Finish, Frame, decode_frame
from outrider.wire.ids import pack_ids

from tests.processes import ServiceProcess
from tests.toy_model import save_toy
from tests.verifier.inside import LENGTH, Inside, asked, inside
from tests.waiting import eventually


@pytest.fixture
async def verifier(shared_nats: str, tmp_path: Path) -> AsyncIterator[Inside]:
    model = save_toy(tmp_path / "departing", 50)
    async with inside(shared_nats, model, instance="departing", max_running=4, page_size=8) as made:
        yield made


@asynccontextmanager
async def another(bus: Bus, verifier: Inside, **status: Any) -> AsyncIterator[Registry]:
    """The registry of another verifier of the same model, which announces ``status`` over that of ``verifier``."""
    announced = verifier.service.status() | status
    registry = Registry(bus, "verifier", "another", lambda: announced)
    await registry.start()
    registry.set_state(State.READY)
    yield registry
    registry.leave()


@asynccontextmanager
async def held(verifier: Inside, *requests: pb.SubmitRequest) -> AsyncIterator[ExitStack]:
    """Holds the engine once it has taken the ``requests``, before their first step; the stack ends the hold."""
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(verifier.hold())
        submitted = [asyncio.ensure_future(verifier.stub.Submit(request)) for request in requests]
        await verifier.posted(len(requests))
        second.enter_context(verifier.hold(first.pop_all().close))
        yield second
    await asyncio.gather(*submitted)


async def last_frame(verifier: Inside, name: str) -> Frame:
    call = verifier.stub.Follow(pb.FollowRequest(request_id=name))
    return [decode_frame(each.frame) async for each in call][-1]


async def test_a_verifier_that_drains_leaves_those_requests_to_another_that_has_room_for_them(
    verifier: Inside, bus: Bus
) -> None:
    async with another(bus, verifier, context_length=LENGTH):
        async with held(verifier, asked("short", tokens=LENGTH - 10), asked("long")) as first:
            leaving = asyncio.ensure_future(verifier.service.drain())
            await asyncio.wait({leaving}, timeout=2 * SETTLE_S)
            with verifier.hold(first.close):  # pages are offered, and no step is taken before the requests are released
                await asyncio.wait({leaving}, timeout=SETTLE_S)  # other calls are posted as well, now and then
                await verifier.posted(1)
        await leaving
    moved, ended = await last_frame(verifier, "short"), await last_frame(verifier, "long")
    assert (moved.finish, moved.error, moved.verifier) == (Finish.CANCELLED, None, "departing")
    assert (ended.finish, ended.first_index + len(ended.tokens)) == (Finish.LENGTH, LENGTH)


async def test_the_only_verifier_of_a_model_ends_its_requests_itself(verifier: Inside, bus: Bus) -> None:
    async with another(bus, verifier, model="of another name"):
        async with held(verifier, asked("staying")):
            leaving = asyncio.ensure_future(verifier.service.drain())
            await asyncio.wait({leaving}, timeout=2 * SETTLE_S)
        await leaving
    assert (await last_frame(verifier, "staying")).finish is Finish.LENGTH


async def test_a_kv_cache_that_came_later_has_the_pages_of_requests_that_move(
    verifier: Inside, bus: Bus, shared_nats: str, tmp_path: Path
) -> None:
    request = asked("moving", tokens=200)
    request.prompt = pack_ids([1, 2, 3] * 9)  # three pages and a token more
    with kv_cache(shared_nats, tmp_path / "first.log"):
        await eventually(lambda: caches() == 1)
        await verifier.stub.Submit(request)
        held = await hold_once(verifier, lambda: verifier.sequence("moving").published >= 3)
    with held:
        await eventually(lambda: caches() == 0)
        with kv_cache(shared_nats, tmp_path / "second.log", instance="second"):
            await eventually(lambda: caches() == 1)
            leaving = asyncio.ensure_future(verifier.service.drain())
            async with another(bus, verifier) as registry:
                await asyncio.sleep(2 * SETTLE_S)
                with verifier.hold(held.close):
                    await registry.wait_for("kvcache", lambda members: members[0].status["pages"] >= 3, 10)
                await leaving
    assert (await last_frame(verifier, "moving")).finish is Finish.CANCELLED


@contextmanager
def kv_cache(nats_url: str, log: Path, instance: str = "first") -> Iterator[None]:
    """A KV cache in a process of its own, which is killed at the end."""
    cache = ServiceProcess("kvcache", log, nats_url=nats_url, instance=instance)
    cache.start()
    try:
        cache.wait_ready()
        yield
    finally:
        cache.stop()


def caches() -> float | None:
    return REGISTRY.get_sample_value("outrider_verifier_kv_caches")


async def hold_once(verifier: Inside, reached: Callable[[], bool]) -> ExitStack:
    """Holds the engine between two steps, once ``reached`` is true there."""
    while True:
        with ExitStack() as held:
            held.enter_context(verifier.hold())
            if reached():
                return held.pop_all()
        await asyncio.sleep(0)
