"""Unary calls on lanes: real servers and channels on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from outrider.mesh.addresses import hold_port
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
    Unreachable,
)
from outrider.mesh.rpc import Server, ask, close_channels
from outrider.mesh.rpc.calls import FAREWELL, Batches, Call, decode_calls, decode_outcomes, encode
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

from tests.waiting import eventually

Context = grpc.aio.ServicerContext
DECODE = "/outrider.v1.Tokenizer/Decode"


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
    lanes = f"127.0.0.1:{server.lane_port}"
    answer = await ask(address, DECODE, request, pb.DecodeResponse, timeout, lanes)
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
    later = Server(port=hold_port(), lane_port=hold_port())
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


async def test_a_call_that_is_given_up_in_the_message_that_brings_it_is_not_made_and_not_waited_for(
    server: Server, servicer: Scripted
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.lane_port)
    data = pb.DecodeRequest(ids=[b"x"]).SerializeToString()
    for calls in ([Call(1, DECODE, data), Call(1)], [Call(2, DECODE, data)]):
        message = encode(calls)
        writer.write(len(message).to_bytes(4, "big") + message)
    outcomes = decode_outcomes(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
    assert ([each.number for each in outcomes], servicer.begun) == ([2], 1)
    assert not any(lane._answering for lane in server._router.lanes.open)
    writer.close()


async def test_what_is_no_unary_method_is_not_found(server: Server, servicer: Scripted) -> None:
    for method in ("DecodeStream", "Nothing"):
        with pytest.raises(NotFound):
            await ask(
                f"127.0.0.1:{server.port}",
                f"/outrider.v1.Tokenizer/{method}",
                pb.DecodeRequest(),
                pb.DecodeResponse,
                20,
                f"127.0.0.1:{server.lane_port}",
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


async def test_a_call_goes_by_itself_where_there_is_no_lane(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = raising(Overloaded("full", retry_after=2.0))
    for lanes in (None, "", f"127.0.0.1:{hold_port()}"):
        with pytest.raises(Overloaded, match="full"):
            await ask(f"127.0.0.1:{server.port}", DECODE, pb.DecodeRequest(ids=[b"x"]), pb.DecodeResponse, 20, lanes)
    assert servicer.begun == 3


async def test_what_is_longer_than_sockets_hold_comes_whole(server: Server, servicer: Scripted) -> None:
    said = ["x" * (5 << 20), "short", "y" * (3 << 20)]
    assert await asyncio.gather(*(decode(server, each) for each in said)) == said


async def test_what_is_too_long_for_a_lane_goes_by_itself(
    server: Server, servicer: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.mesh.rpc.calling.LONGEST", 1000)
    monkeypatch.setattr("outrider.mesh.rpc.framing.MESSAGE_BYTES", 1500)
    assert await decode(server, "x" * 2000) == "x" * 2000


async def test_a_message_may_come_byte_by_byte(server: Server, servicer: Scripted) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.lane_port)
    message = encode([Call(7, DECODE, pb.DecodeRequest(ids=[b"slow"]).SerializeToString())])
    for byte in len(message).to_bytes(4, "big") + message:
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    outcomes = decode_outcomes(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
    assert [(each.number, pb.DecodeResponse.FromString(each.data).texts) for each in outcomes] == [(7, ["slow"])]
    writer.close()


@pytest.mark.parametrize("sent", [(65 << 20).to_bytes(4, "big"), b"\0\0\0\1\xc1"], ids=["too long", "no calls"])
async def test_who_sends_what_is_no_message_is_cut_off(sent: bytes, server: Server, servicer: Scripted) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.lane_port)
    writer.write(sent)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("last", [b"", b"\0\0\0\1" + FAREWELL], ids=["killed", "stopped"])
async def test_a_service_that_is_lost_is_told_from_one_that_ends(last: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(last)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        error = await lost(listening)
    assert isinstance(error, Unreachable) == (not last)
    assert getattr(error, "broke", False) == (not last)


async def test_a_service_that_answers_nothing_any_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.mesh.rpc.lane._PING_S", 0.05)
    heard = bytearray()

    async def freeze(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            heard.extend(data)
        writer.close()

    async with await asyncio.start_server(freeze, "127.0.0.1", 0) as listening:
        error = await lost(listening)
    assert isinstance(error, Unreachable)
    assert heard.endswith(b"\0\0\0\0" * 2), "it was not asked whether it is there"


async def test_a_service_that_is_slow_but_there_is_not_lost(
    server: Server, servicer: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.mesh.rpc.lane._PING_S", 0.02)
    servicer.behaviour = lambda: asyncio.sleep(0.3)
    assert await decode(server) == "x"


async def lost(listening: asyncio.Server) -> OutriderError:
    port = listening.sockets[0].getsockname()[1]
    with pytest.raises(Unavailable) as caught:
        await ask("127.0.0.1:1", DECODE, pb.DecodeRequest(), pb.DecodeResponse, 20, f"127.0.0.1:{port}")
    return caught.value
