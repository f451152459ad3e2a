"""The log of a request exists exactly as long as the engine holds the request, however the call of `Submit` ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path

import grpc
import pytest
from outrider.engine.decode.outcome import QueuePlace
from outrider.engine.requests.sequence import Request
from outrider.mesh.errors import AlreadyExists, Internal, NotFound, OutriderError, Overloaded, from_rpc
from outrider.v1 import verifier_pb2 as pb
from outrider.wire.frames import Finish, Frame, decode_frame

from tests.toy_model import save_toy
from tests.verifier.inside import LENGTH, Inside, asked, inside

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", 50)


@pytest.fixture
async def verifier(shared_nats: str, model: Path) -> AsyncIterator[Inside]:
    async with inside(shared_nats, model, max_running=4, max_waiting=4, page_size=8) as made:
        yield made


async def follow(verifier: Inside, name: str) -> list[Frame]:
    async with asyncio.timeout(PATIENCE_S):
        call = verifier.stub.Follow(pb.FollowRequest(request_id=name))
        return [decode_frame(response.frame) async for response in call]


async def refused(call: Awaitable[object]) -> OutriderError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc(caught.value)


async def end(verifier: Inside, name: str) -> Finish | None:
    """How a request ends; None for an unknown request."""
    try:
        return (await follow(verifier, name))[-1].finish
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise
        return None


async def test_a_call_that_is_cancelled_before_the_engine_takes_its_request_leaves_nothing(verifier: Inside) -> None:
    with verifier.hold():
        call = verifier.stub.Submit(asked("early"))
        await verifier.posted(1)
        call.cancel()
        await verifier.ended(1)
    assert await end(verifier, "early") is None
    await verifier.stub.Submit(asked("early"))
    assert await end(verifier, "early") is Finish.LENGTH


async def test_a_call_that_is_cancelled_once_the_engine_has_its_request_leaves_it_with_its_lease(
    verifier: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, released, submit = threading.Event(), threading.Event(), verifier.engine.submit

    def slow(request: Request) -> QueuePlace:
        place = submit(request)
        taken.set()
        released.wait(PATIENCE_S)
        return place

    monkeypatch.setattr(verifier.engine, "submit", slow)
    call = verifier.stub.Submit(asked("late", lease_ms=1))
    await asyncio.to_thread(taken.wait, PATIENCE_S)
    call.cancel()
    await verifier.ended(1)
    with verifier.hold(released.set):
        await verifier.posted(1)
    assert await end(verifier, "late") is Finish.CANCELLED


@pytest.mark.parametrize("first_ms", [0, 7, 14])
async def test_whenever_a_call_is_cancelled_its_request_ends_or_never_was(verifier: Inside, first_ms: int) -> None:
    for number in range(20):
        name = f"whenever-{first_ms}-{number}"
        call = verifier.stub.Submit(asked(name, lease_ms=100))
        await asyncio.sleep((first_ms + 7 * number / 20) / 1e3)
        call.cancel()
        assert await end(verifier, name) in (Finish.CANCELLED, Finish.LENGTH, None)


async def test_a_request_that_the_engine_fails_to_take_leaves_nothing(
    verifier: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: Request) -> QueuePlace:
        raise ValueError("no such thing")

    with monkeypatch.context() as broken:
        broken.setattr(verifier.engine, "submit", fail)
        assert isinstance(await refused(verifier.stub.Submit(asked("failed"))), Internal)
    assert await end(verifier, "failed") is None
    await verifier.stub.Submit(asked("failed"))
    assert await end(verifier, "failed") is Finish.LENGTH


async def test_a_full_queue_says_how_long_its_requests_wait(verifier: Inside) -> None:
    await verifier.stub.Submit(asked("before"))
    assert await end(verifier, "before") is Finish.LENGTH
    with verifier.hold():
        slow = partial(verifier.engine.estimate.step, rows=1, prompt_rows=0, decoding=1, tokens=1, seconds=200)
        verifier.service.inbox.post(slow)
        calls = [asyncio.ensure_future(verifier.stub.Submit(asked(f"many-{number}"))) for number in range(12)]
        await verifier.posted(13)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [from_rpc(answer) for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert [type(error) for error in errors] == [Overloaded] * 4
    assert all(error.retry_after and error.retry_after > LENGTH / 2 for error in errors)


async def test_one_of_two_calls_at_once_is_told_that_there_is_the_request_already(verifier: Inside) -> None:
    with verifier.hold():
        calls = [asyncio.ensure_future(refused(verifier.stub.Submit(asked("twin")))) for _ in range(2)]
        await verifier.posted(2)
    done, _ = await asyncio.wait(calls, timeout=PATIENCE_S)
    errors = [type(call.result()) for call in done if call.exception() is None]
    assert (len(done), errors) == (2, [AlreadyExists])
    assert await end(verifier, "twin") is Finish.LENGTH


async def test_a_request_submitted_behind_its_own_cancellation_is_a_new_one(verifier: Inside) -> None:
    with verifier.hold():
        first = verifier.stub.Submit(asked("again"))
        await verifier.posted(1)
        cancel = verifier.stub.Cancel(pb.CancelRequest(request_id="again"))
        await verifier.posted(2)
        second = verifier.stub.Submit(asked("again"))
        await verifier.posted(3)
    await first
    assert (await cancel).cancelled
    await second
    frames = await follow(verifier, "again")
    assert (frames[-1].finish, sum(len(frame.tokens) for frame in frames)) == (Finish.LENGTH, LENGTH)


async def heard(verifier: Inside, name: str, heartbeat_ms: int) -> AsyncIterator[pb.FollowResponse]:
    async with asyncio.timeout(PATIENCE_S):
        async for response in verifier.stub.Follow(pb.FollowRequest(request_id=name, heartbeat_ms=heartbeat_ms)):
            yield response


async def test_who_follows_a_request_that_waits_hears_that_the_engine_holds_it(verifier: Inside) -> None:
    with verifier.hold():
        submitted = verifier.stub.Submit(asked("parked"))
        await verifier.posted(1)
        verifier.service.inbox.post(lambda: verifier.engine.scheduler.park(verifier.sequence("parked")))
    await submitted
    responses: list[pb.FollowResponse] = []
    async for response in heard(verifier, "parked", heartbeat_ms=5):
        responses.append(response)
        if len(responses) == 3:
            verifier.service.inbox.post(lambda: verifier.engine.scheduler.resume(verifier.sequence("parked")))
    assert [(each.held, each.frame) for each in responses[:3]] == [(True, b"")] * 3
    frames = [decode_frame(each.frame) for each in responses if not each.held]
    assert sum(len(frame.tokens) for frame in frames) == LENGTH


async def test_followers_of_a_log_whose_request_the_engine_does_not_hold_are_told_so(verifier: Inside) -> None:
    verifier.service.log.open("ghost")
    for _ in range(2):
        call = verifier.stub.Follow(pb.FollowRequest(request_id="ghost", heartbeat_ms=5))
        assert isinstance(await refused(call.read()), NotFound)
    await verifier.stub.Submit(asked("ghost"))
    assert await end(verifier, "ghost") is Finish.LENGTH


async def test_an_engine_that_does_not_answer_gives_no_heartbeat(verifier: Inside) -> None:
    with verifier.hold():
        submitted = verifier.stub.Submit(asked("mute"))
        await verifier.posted(1)
        verifier.service.inbox.post(lambda: verifier.engine.scheduler.park(verifier.sequence("mute")))
    await submitted
    with verifier.hold():
        call = verifier.stub.Follow(pb.FollowRequest(request_id="mute", heartbeat_ms=5))
        reading = asyncio.ensure_future(call.read())
        await verifier.posted(1)
        assert not reading.done()
    assert (await reading).held
    assert (await verifier.stub.Cancel(pb.CancelRequest(request_id="mute"))).cancelled


async def test_a_heartbeat_that_cannot_be_is_refused(verifier: Inside) -> None:
    call = verifier.stub.Follow(pb.FollowRequest(request_id="any", heartbeat_ms=-1))
    assert "heartbeat_ms" in (await refused(call.read())).message
