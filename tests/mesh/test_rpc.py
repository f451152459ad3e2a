"""gRPC between services: real servers and channels on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import (
    ERRORS,
    Internal,
    InvalidRequest,
    OutriderError,
    Overloaded,
    Unavailable,
    Unreachable,
    from_rpc,
)
from outrider.mesh.rpc import Server, channel, close_channels
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc
from outrider.v1.proposer_pb2 import DraftRequest, DraftResponse, ProposerHello, VerifierHello
from outrider.v1.proposer_pb2_grpc import ProposerServicer, ProposerStub, add_ProposerServicer_to_server

Behaviour = Callable[[Any], Any]


class Scripted(rpc.TokenizerServicer, ProposerServicer):
    """A servicer whose behaviour each test sets."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda context: None
        self.cancelled = asyncio.Event()

    async def Describe(self, request: Any, context: Any) -> pb.DescribeTokenizerResponse:  # noqa: N802
        answer = self.behaviour(context)
        if asyncio.iscoroutine(answer):
            answer = await answer
        return answer or pb.DescribeTokenizerResponse(model="scripted")

    async def Draft(self, requests: Any, context: Any) -> AsyncIterator[DraftResponse]:  # noqa: N802
        try:
            async for request in requests:
                if request.closes:
                    self.behaviour(context)
                yield DraftResponse(hello=ProposerHello(instance=request.hello.instance))
        finally:
            self.cancelled.set()


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
    add_ProposerServicer_to_server(servicer, server)
    await server.set_serving(True)
    return servicer


@pytest.fixture
async def stub(server: Server, servicer: Scripted) -> Any:
    return rpc.TokenizerStub(channel(f"127.0.0.1:{server.port}"))


@pytest.fixture
async def drafting(server: Server, servicer: Scripted) -> Any:
    """A stream in both directions."""
    return ProposerStub(channel(f"127.0.0.1:{server.port}")).Draft()


def raising(error: Exception) -> Behaviour:
    def behave(context: Any) -> None:
        raise error

    return behave


async def failure(stub: Any) -> OutriderError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Describe(pb.DescribeTokenizerRequest(), timeout=10)
    return from_rpc(caught.value)


@pytest.mark.parametrize("kind", ERRORS)
async def test_every_error_comes_back_as_the_class_that_was_raised(
    kind: type[OutriderError], servicer: Scripted, stub: Any
) -> None:
    servicer.behaviour = raising(kind("what went wrong"))
    error = await failure(stub)
    assert type(error) is kind
    assert error.message == ("internal error" if kind is Internal else "what went wrong")


def test_every_error_of_the_tree_is_among_those_that_are_mapped() -> None:
    assert {kind for kind in OutriderError.__subclasses__() if kind.__module__ == OutriderError.__module__} == set(
        ERRORS
    )
    assert len({error.code for error in ERRORS}) == len({error.http_status for error in ERRORS}) == len(ERRORS)


async def test_the_parameter_at_fault_crosses_the_wire(servicer: Scripted, stub: Any) -> None:
    servicer.behaviour = raising(InvalidRequest("too hot", param="messages[0].größe"))
    assert (await failure(stub)).param == "messages[0].größe"


async def test_the_time_to_retry_crosses_the_wire(servicer: Scripted, stub: Any) -> None:
    servicer.behaviour = raising(Overloaded("full", retry_after=1.25))
    error = await failure(stub)
    assert error.retry_after == 1.25
    assert error.retryable


async def test_an_unexpected_error_says_nothing_of_the_inside(servicer: Scripted, stub: Any) -> None:
    servicer.behaviour = raising(KeyError("secret"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Describe(pb.DescribeTokenizerRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "internal error"
    assert type(from_rpc(caught.value)) is Internal


async def test_an_error_of_a_service_further_on_keeps_its_class(servicer: Scripted, stub: Any) -> None:
    nowhere = rpc.TokenizerStub(channel(f"127.0.0.1:{hold_port()}"))

    async def ask(context: Any) -> Any:
        return await nowhere.Describe(pb.DescribeTokenizerRequest(), timeout=5)

    servicer.behaviour = ask
    assert type(await failure(stub)) is Unavailable


async def test_a_method_that_nobody_wrote_is_unimplemented(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Decode(pb.DecodeRequest())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_service_that_cannot_be_reached_is_unavailable_and_keeps_its_address_to_itself() -> None:
    port = hold_port()
    error = await failure(rpc.TokenizerStub(channel(f"127.0.0.1:{port}")))
    assert type(error) is Unreachable
    assert str(port) not in str(error)
    await close_channels()


async def test_an_error_in_a_stream_comes_after_what_was_sent_before(servicer: Scripted, drafting: Any) -> None:
    servicer.behaviour = raising(InvalidRequest("no such session", param="closes"))
    await drafting.write(DraftRequest(hello=VerifierHello(instance="here")))
    assert (await drafting.read()).hello.instance == "here"
    await drafting.write(DraftRequest(closes=[1]))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drafting.read()
    assert from_rpc(caught.value).param == "closes"


async def test_a_cancelled_stream_ends_its_handler(servicer: Scripted, drafting: Any) -> None:
    await drafting.write(DraftRequest())
    await drafting.read()
    drafting.cancel()
    async with asyncio.timeout(5):
        await servicer.cancelled.wait()


async def test_a_cancelled_call_ends_its_handler(servicer: Scripted, stub: Any) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def linger(context: Any) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    servicer.behaviour = linger
    call = stub.Describe(pb.DescribeTokenizerRequest())
    waiting = asyncio.ensure_future(call)
    await started.wait()
    call.cancel()
    async with asyncio.timeout(5):
        await ended.wait()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_messages_of_many_megabytes_pass(servicer: Scripted, stub: Any) -> None:
    servicer.behaviour = lambda context: pb.DescribeTokenizerResponse(model="x" * (20 << 20))
    assert len((await stub.Describe(pb.DescribeTokenizerRequest())).model) == 20 << 20


async def test_a_handler_of_raw_bytes_is_served_and_guarded(server: Server) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        if not request:
            raise InvalidRequest("empty")
        return request

    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("raw.Bytes", handlers),))
    await server.set_serving(True)
    call = channel(f"127.0.0.1:{server.port}").unary_unary("/raw.Bytes/Echo")
    assert await call(b"raw") == b"raw"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"")
    assert type(from_rpc(caught.value)) is InvalidRequest


async def test_health_says_not_serving_and_calls_are_refused_until_the_service_is_ready(server: Server) -> None:
    to_server = channel(f"127.0.0.1:{server.port}")
    health = health_pb2_grpc.HealthStub(to_server)
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    rpc.add_TokenizerServicer_to_server(Scripted(), server)
    error = await failure(rpc.TokenizerStub(to_server))
    assert type(error) is Unavailable
    assert error.message == "the service is starting"


async def test_health_follows_the_service_and_names_it(server: Server, servicer: Scripted, stub: Any) -> None:
    health = health_pb2_grpc.HealthStub(channel(f"127.0.0.1:{server.port}"))
    request = health_pb2.HealthCheckRequest(service="outrider.v1.Tokenizer")
    assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
    await server.set_serving(False)
    assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert (await stub.Describe(pb.DescribeTokenizerRequest())).model == "scripted"


async def test_reflection_lists_the_services_and_their_messages(server: Server, servicer: Scripted) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel(f"127.0.0.1:{server.port}"))
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await call.read()).list_services_response.service}
    assert names >= {"outrider.v1.Tokenizer", "grpc.health.v1.Health"}
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="outrider.v1.Tokenizer"))
    assert (await call.read()).file_descriptor_response.file_descriptor_proto
    call.cancel()


async def test_reflection_is_there_as_v1_and_describes_itself(server: Server, servicer: Scripted) -> None:
    name = "grpc.reflection.v1.ServerReflection"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as to_server:
        old = reflection_pb2_grpc.ServerReflectionStub(to_server).ServerReflectionInfo()
        await old.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
        (file,) = (await old.read()).file_descriptor_response.file_descriptor_proto
        old.cancel()
        pool = DescriptorPool()
        pool.AddSerializedFile(file)
        method = pool.FindServiceByName(name).FindMethodByName("ServerReflectionInfo")
        asked, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        assert asked.DESCRIPTOR.full_name == "grpc.reflection.v1.ServerReflectionRequest"
        call = to_server.stream_stream(f"/{name}/{method.name}", asked.SerializeToString, answer.FromString)()
        await call.write(asked(list_services=""))
        names = {service.name for service in (await call.read()).list_services_response.service}
        assert names >= {"outrider.v1.Tokenizer", name, "grpc.reflection.v1alpha.ServerReflection"}
        await call.write(asked(file_containing_symbol="outrider.v1.Tokenizer"))
        assert (await call.read()).file_descriptor_response.file_descriptor_proto
        call.cancel()


async def test_a_port_in_use_is_told_in_one_sentence(server: Server) -> None:
    with pytest.raises(Unavailable, match=f"127.0.0.1:{server.port}"):
        await Server(port=server.port).start()


async def test_one_address_has_one_channel() -> None:
    assert channel("127.0.0.1:1") is channel("127.0.0.1:1")
    await close_channels()
