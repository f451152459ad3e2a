"""Unary calls of other services: real servers and channels on free ports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import (
    ERRORS,
    ContextExceeded,
    DeadlineExceeded,
    DeadlineUnmeetable,
    Internal,
    InvalidRequest,
    OutriderError,
    Overloaded,
    Unavailable,
    Unreachable,
)
from outrider.mesh.rpc import Server, call, close_channels, stub
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

from tests.relay import Relay
from tests.waiting import eventually

Context = grpc.aio.ServicerContext
TOO_LONG = 65 << 20


class Scripted(rpc.TokenizerServicer):
    """A servicer whose behaviour each test sets; it echoes the first id."""

    def __init__(self) -> None:
        self.behaviour: Callable[[], Awaitable[object]] = self.nothing
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


class Asked(Server):
    """A server whose calls come over a ``shared`` stream or each alone."""

    def __init__(self, shared: bool, port: int = 0) -> None:
        super().__init__(port=port)
        self.shared = shared


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def shared(request: pytest.FixtureRequest) -> bool:
    """Whether calls share a stream."""
    return bool(request.param)


@pytest.fixture
async def server(shared: bool) -> AsyncIterator[Server]:
    server = Asked(shared)
    await server.start()
    yield server
    await close_channels()
    await server.stop(0)


class Peers(rpc.TokenizerServicer):
    """A servicer that echoes, and keeps the context of each stream or call."""

    def __init__(self) -> None:
        self.contexts: set[Context] = set()

    async def Decode(self, request: pb.DecodeRequest, context: Context) -> pb.DecodeResponse:  # noqa: N802
        self.contexts.add(context)
        return pb.DecodeResponse(texts=[request.ids[0].decode()])


@pytest.fixture
async def servicer(server: Server) -> Scripted:
    servicer = Scripted()
    rpc.add_TokenizerServicer_to_server(servicer, server)
    await server.set_serving(True)
    return servicer


async def decode(server: Server, said: str = "x", timeout: float = 20.0) -> str:
    shared = isinstance(server, Asked) and server.shared
    decoding = stub(rpc.TokenizerStub, f"127.0.0.1:{server.port}", shared=shared).Decode
    return str((await call(decoding, pb.DecodeRequest(ids=[said.encode()]), timeout)).texts[0])


async def failure(server: Server, said: str = "x", timeout: float = 20.0) -> OutriderError:
    with pytest.raises(OutriderError) as caught:
        await decode(server, said, timeout)
    return caught.value


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def raising(error: Exception) -> Callable[[], Awaitable[None]]:
    async def behave() -> None:
        raise error

    return behave


async def test_each_of_many_calls_at_once_gets_its_own_answer(server: Server, servicer: Scripted) -> None:
    questions = [str(number) for number in range(500)]
    assert await asyncio.gather(*(decode(server, each) for each in questions)) == questions


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


@pytest.mark.parametrize("kind", [*ERRORS, ContextExceeded, DeadlineUnmeetable])
async def test_every_error_comes_back_as_it_was_raised(
    kind: type[OutriderError], server: Server, servicer: Scripted
) -> None:
    servicer.behaviour = raising(kind("what went wrong", param="messages[0].größe", retry_after=1.25))
    error = await failure(server)
    assert type(error) is kind
    assert error.message == ("internal error" if kind is Internal else "what went wrong")
    details = (None, None) if kind is Internal else ("messages[0].größe", 1.25)
    assert (error.param, error.retry_after) == details


async def test_an_error_that_callers_do_not_know_comes_back_as_its_nearest_kind(
    server: Server, servicer: Scripted
) -> None:
    class Special(Overloaded):
        """A kind of the service's own."""

    servicer.behaviour = raising(Special("full"))
    assert type(await failure(server)) is Overloaded


async def test_a_call_that_takes_too_long_is_given_up_and_cancelled(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = asyncio.Event().wait
    assert type(await failure(server, timeout=0.2)) is DeadlineExceeded
    await eventually(lambda: servicer.cancelled == 1)


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = asyncio.Event().wait
    asking = asyncio.create_task(decode(server))
    await eventually(lambda: servicer.begun == 1)
    asking.cancel()
    await eventually(lambda: servicer.cancelled == 1)


async def test_calls_end_where_their_caller_is_lost(server: Server, servicer: Scripted) -> None:
    servicer.behaviour = asyncio.Event().wait
    asking = asyncio.create_task(decode(server))
    await eventually(lambda: servicer.begun == 1)
    await close_channels()
    await eventually(lambda: servicer.cancelled == 1 and asking.done())


async def test_a_service_that_is_not_there_is_unavailable_and_may_come_later(shared: bool, servicer: Scripted) -> None:
    later = Asked(shared, port=hold_port())
    missing = await failure(later)
    assert isinstance(missing, Unreachable)
    assert not missing.broke, "nobody can have had the call"
    rpc.add_TokenizerServicer_to_server(servicer, later)
    await later.start()
    assert isinstance(await failure(later), Unavailable)
    await later.set_serving(True)
    while servicer.begun == 0:
        with suppress(Unavailable):
            assert await decode(later) == "x"
    await close_channels()
    await later.stop(0)


async def test_a_connection_that_breaks_while_calls_are_sent_is_no_failure_of_the_service(shared: bool) -> None:
    server, relay, port = Asked(shared), Relay(0, 0.0), hold_port()
    rpc.add_TokenizerServicer_to_server(Scripted(), server)
    await server.start()
    await server.set_serving(True)
    relay.target = server.port
    await relay.start(port)
    decoding = stub(rpc.TokenizerStub, f"127.0.0.1:{port}", shared=shared).Decode
    failures: list[OutriderError] = []
    breaking = True

    async def ask() -> None:
        while breaking:
            try:
                await call(decoding, pb.DecodeRequest(ids=[b"x" * 4096]), 20.0)
            except OutriderError as error:
                failures.append(error)
                await asyncio.sleep(0.01)

    asking = [asyncio.create_task(ask()) for _ in range(16)]
    for _ in range(60):
        await asyncio.sleep(0.03)
        for transport in list(relay.open):
            transport.abort()
    breaking = False
    await asyncio.gather(*asking)
    assert len(failures) > 16
    assert {type(error) for error in failures} <= {Unavailable, Unreachable}
    await close_channels()
    await relay.stop()
    await server.stop(0)


async def test_a_server_that_stops_answers_what_it_was_asked_and_takes_no_more(
    server: Server, servicer: Scripted
) -> None:
    gate = asyncio.Event()
    servicer.behaviour = gate.wait
    asking = asyncio.create_task(decode(server))
    await eventually(lambda: servicer.begun == 1)
    stopping = asyncio.create_task(server.stop(20))
    await eventually(lambda: not listens(server.port))
    refused = await failure(server)
    gate.set()
    assert await asking == "x"
    await stopping
    assert isinstance(refused, Unreachable)
    assert (refused.broke, servicer.begun) == (False, 1), "a service that stops is taken for one that died of the call"


async def test_a_service_that_stops_without_grace_fails_its_calls_as_unavailable(
    server: Server, servicer: Scripted
) -> None:
    servicer.behaviour = asyncio.Event().wait
    asking = asyncio.create_task(failure(server))
    await eventually(lambda: servicer.begun == 1)
    await server.stop(0)
    assert isinstance(await asking, Unavailable)
    assert servicer.cancelled == 1


async def test_long_messages_come_whole(server: Server, servicer: Scripted) -> None:
    said = ["x" * (5 << 20), "short", "y" * (3 << 20)]
    assert await asyncio.gather(*(decode(server, each) for each in said)) == said


async def test_calls_at_once_may_be_longer_than_a_message_together(server: Server, servicer: Scripted) -> None:
    said = [f"{number:03}" + "x" * (200 << 10) for number in range(340)]
    assert sum(map(len, said)) > 64 << 20
    assert await asyncio.gather(*(decode(server, each) for each in said)) == said


async def test_a_message_that_is_too_long_is_refused_in_words(server: Server, servicer: Scripted) -> None:
    error = await failure(server, "x" * TOO_LONG)
    assert (type(error), servicer.begun) == (InvalidRequest, 0)
    assert "too long" in error.message
    assert str(64 << 20) in error.message
    assert await decode(server) == "x"


async def test_calls_share_one_stream_if_the_service_has_one_and_go_alone_if_not() -> None:
    for server, contexts in ((Asked(shared=True), 1), (Server(public=True), 3)):
        peers = Peers()
        rpc.add_TokenizerServicer_to_server(peers, server)
        await server.start()
        await server.set_serving(True)
        asking = stub(rpc.TokenizerStub, f"127.0.0.1:{server.port}", shared=True).Decode
        for said in ("x", "y", "z"):
            assert (await call(asking, pb.DecodeRequest(ids=[said.encode()]), 20)).texts == [said]
        assert len(peers.contexts) == contexts
        await close_channels()
        await server.stop(0)


async def test_one_stub_serves_all_calls_of_a_service() -> None:
    assert stub(rpc.TokenizerStub, "127.0.0.1:1") is stub(rpc.TokenizerStub, "127.0.0.1:1")
    assert stub(rpc.TokenizerStub, "127.0.0.1:1") is not stub(rpc.TokenizerStub, "127.0.0.1:2")
    await close_channels()
