"""Unary calls on lanes: real servers and channels on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from outrider.mesh.errors import (
    ERRORS,
    DeadlineExceeded,
    DeadlineUnmeetable,
    Internal,
    InvalidRequest,
    NotFound,
    OutriderError,
    Overloaded,
    Unavailable,
)
from outrider.mesh.rpc import Server, ask, close_channels
from outrider.mesh.rpc.calls import Batches, Call, decode_calls
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

from tests.broker import free_port
from tests.waiting import eventually

Context = grpc.aio.ServicerContext


class Scripted(rpc.TokenizerServicer):
    """Does what the test says, and echoes the first id."""

    def __init__(self) -> None:
        self.behaviour: Callable[[], Awaitable[None]] = self.nothing
        self.begun = self.cancelled = 0

    async def nothing(self) -> None:
        """Waits for nothing."""

    async def Decode(self, request: pb.DecodeRequest, context: Context) -> pb.DecodeResponse:  # noqa: N802
        self.begun += 1
        try:
            await self.behaviour()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return pb.DecodeResponse(texts=[request.ids[0].decode()])


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await close_channels()
    await server.stop(0)


@pytest.fixture
async def servicer(server: Server) -> Scripted:
    servicer = Scripted()
    rpc.add_TokenizerServicer_to_server(servicer, server)
    await server.set_serving(True)
    return servicer


async def decode(server: Server, said: str = "x", timeout: float = 20.0) -> str:
    address, request = f"127.0.0.1:{server.port}", pb.DecodeRequest(ids=[said.encode()])
    answer = await ask(address, "/outrider.v1.Tokenizer/Decode", request, pb.DecodeResponse, timeout)
    return str(answer.texts[0])


async def failure(server: Server, timeout: float = 20.0) -> OutriderError:
    with pytest.raises(OutriderError) as caught:
        await decode(server, timeout=timeout)
    return caught.value


def raising(error: Exception) -> Callable[[], Awaitable[None]]:
    async def behave() -> None:
        raise error

    return behave


async def test_each_of_many_calls_at_once_gets_its_own_answer(server: Server, servicer: Scripted) -> None:
    asked = [str(number) for number in range(500)]
    assert await asyncio.gather(*(decode(server, each) for each in asked)) == asked


async def test_a_call_that_waits_keeps_no_other_waiting(server: Server, servicer: Scripted) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        if servicer.begun == 1:
            await gate.wait()

    servicer.behaviour = wait
    first = asyncio.create_task(decode(server, "first"))
    await eventually(lambda: servicer.begun == 1)
    assert await decode(server, "second") == "second"
    gate.set()
    assert await first == "first"


@pytest.mark.parametrize("kind", [*ERRORS, DeadlineUnmeetable])
async def test_every_error_comes_back_as_it_was_raised(
    kind: type[OutriderError], server: Server, servicer: Scripted
) -> None:
    servicer.behaviour = raising(kind("what went wrong", param="messages[0].größe", retry_after=1.25))
    error = await failure(server)
    assert type(error) is kind
    assert error.message == ("internal error" if kind is Internal else "what went wrong")
    told = (None, None) if kind is Internal else ("messages[0].größe", 1.25)
    assert (error.param, error.retry_after) == told


async def test_an_error_that_callers_do_not_know_comes_back_as_its_nearest_kind(
    server: Server, servicer: Scripted
) -> None:
    class Special(Overloaded):
        """A kind of the service's own."""

    servicer.behaviour = raising(Special("full"))
    assert type(await failure(server)) is Overloaded


async def test_an_unexpected_error_says_nothing_of_the_inside(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = raising(KeyError("secret"))
    error = await failure(server)
    assert (type(error), error.message) == (Internal, "internal error")


async def test_a_call_that_takes_too_long_is_given_up_and_cancelled(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = asyncio.Event().wait  # type: ignore[assignment] # its result is not used
    assert type(await failure(server, timeout=0.2)) is DeadlineExceeded
    await eventually(lambda: servicer.cancelled == 1)


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = asyncio.Event().wait  # type: ignore[assignment] # its result is not used
    asking = asyncio.create_task(decode(server))
    await eventually(lambda: servicer.begun == 1)
    asking.cancel()
    await eventually(lambda: servicer.cancelled == 1)


async def test_calls_end_where_their_caller_is_lost(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = asyncio.Event().wait  # type: ignore[assignment] # its result is not used
    asking = asyncio.create_task(decode(server))
    await eventually(lambda: servicer.begun == 1)
    await close_channels()
    await eventually(lambda: servicer.cancelled == 1)
    with pytest.raises(Unavailable):
        await asking


async def test_a_service_that_is_not_there_is_unavailable_and_may_come_later(servicer: Scripted) -> None:
    later = Server(port=free_port())
    assert isinstance(await failure(later), Unavailable)
    rpc.add_TokenizerServicer_to_server(servicer, later)
    await later.start()
    assert isinstance(await failure(later), Unavailable)
    await later.set_serving(True)
    while servicer.begun == 0:
        with suppress(Unavailable):
            assert await decode(later) == "x"
    await close_channels()
    await later.stop(0)


async def test_a_server_that_stops_answers_what_it_was_asked(server: Server, servicer: Scripted) -> None:
    gate = asyncio.Event()
    servicer.behaviour = gate.wait  # type: ignore[assignment] # its result is not used
    asking = asyncio.create_task(decode(server))
    await eventually(lambda: servicer.begun == 1)
    stopping = asyncio.create_task(server.stop(20))
    await asyncio.sleep(0)
    gate.set()
    assert await asking == "x"
    await stopping


async def test_what_is_no_unary_method_is_not_found(server: Server, servicer: Scripted) -> None:
    for method in ("DecodeStream", "Nothing"):
        with pytest.raises(NotFound):
            await ask(
                f"127.0.0.1:{server.port}",
                f"/outrider.v1.Tokenizer/{method}",
                pb.DecodeRequest(),
                pb.DecodeResponse,
                20,
            )


async def test_what_is_too_large_for_one_message_goes_in_several() -> None:
    waiting: Batches[Call] = Batches()
    for number in range(5):
        waiting.put(Call(number, "m", bytes(400_000)))
    sizes = []
    while waiting:
        sizes.append([call.number for call in decode_calls(waiting.take())])
    assert sizes == [[0, 1, 2], [3, 4]]


async def test_an_invalid_request_is_told_from_a_lost_one(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = raising(InvalidRequest("no"))
    assert type(await failure(server)) is InvalidRequest
    assert await asyncio.gather(failure(server), failure(server))
