"""Connections between services over TLS, and renewal while streams run."""

from __future__ import annotations

import asyncio
import ssl

import grpc
import pytest
from cryptography import x509
from outrider.mesh.errors import Unreachable
from outrider.mesh.rpc import Server, channel, local_target, new_socket, secure_channels, stub
from outrider.mesh.security import Certificates
from outrider.mesh.security.refusals import refusal
from outrider.v1 import proposer_pb2_grpc
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

from tests.certificates import Certified
from tests.mesh.security.serving import describe, exchange, serial, serving
from tests.waiting import eventually

STREAMS = 8


async def test_services_call_each_other_by_their_certificates(certified: Certified, address: str) -> None:
    gateway = certified.certificates("gateway")
    secure_channels(gateway)
    assert await describe(address) == serial(gateway.files)
    assert await refusal(address, "tokenizer", gateway) is None


async def test_a_server_is_known_by_its_kind_at_any_address_and_else_by_its_host(
    certified: Certified, address: str
) -> None:
    secure_channels(certified.certificates("gateway"))
    with pytest.raises(Unreachable):
        await describe(address, "verifier")
    assert await describe(address, "")
    assert await describe(address.replace("127.0.0.1", "localhost"), "")


async def test_a_caller_without_a_certificate_is_refused(certified: Certified, address: str) -> None:
    trusting = grpc.ssl_channel_credentials(certified.ca.read_bytes())
    async with grpc.aio.secure_channel(address, trusting) as to_server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.TokenizerStub(to_server).Describe(pb.DescribeTokenizerRequest(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_in_the_clear_is_refused(address: str) -> None:
    with pytest.raises(Unreachable):
        await describe(address)


async def test_streams_go_on_while_certificates_are_renewed_and_new_calls_show_the_new_ones(
    certified: Certified,
) -> None:
    proposer, verifier = certified.certificates("proposer"), certified.certificates("verifier")
    async with serving(Server(certificates=proposer)) as address:
        secure_channels(verifier)
        streams = [stub(proposer_pb2_grpc.ProposerStub, address, "proposer").Draft() for _ in range(STREAMS)]
        first = [await exchange(stream, str(number)) for number, stream in enumerate(streams)]
        assert first == [f"{number} {serial(verifier.files)}" for number in range(STREAMS)]
        old = serial(verifier.files)
        for _ in range(3):
            certified.rotate()
            assert proposer.refresh()
            assert verifier.refresh()
            answers = await asyncio.gather(*(exchange(stream, "again") for stream in streams))
            assert answers == [f"again {old}"] * STREAMS
            new = stub(proposer_pb2_grpc.ProposerStub, address, "proposer").Draft()
            assert await exchange(new, "new") == f"new {serial(verifier.files)}"
            assert await served_serial(address) == serial(proposer.files) != old
        for stream in streams:
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is grpc.StatusCode.OK


async def test_a_replaced_channel_is_closed_when_its_last_call_has_ended(certified: Certified) -> None:
    proposer, verifier = certified.certificates("proposer"), certified.certificates("verifier")
    async with serving(Server(certificates=proposer)) as address:
        secure_channels(verifier, last_calls_s=0.0)
        old = channel(address, "proposer")
        stream = proposer_pb2_grpc.ProposerStub(old).Draft()
        assert await exchange(stream, "first")
        certified.rotate()
        assert verifier.refresh()
        assert channel(address, "proposer") is not old
        await eventually(lambda: not takes_calls(old))
        assert await exchange(stream, "second")
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        await eventually(lambda: old.get_state() is grpc.ChannelConnectivity.SHUTDOWN)


async def test_a_shared_stream_goes_with_its_certificate_once_its_calls_are_answered(certified: Certified) -> None:
    tokenizer, gateway = certified.certificates("tokenizer"), certified.certificates("gateway")
    async with serving(Server(certificates=tokenizer)) as address:
        secure_channels(gateway, last_calls_s=0.0)
        old, before = channel(address, "tokenizer"), serial(gateway.files)
        asked = [asyncio.create_task(describe(address, shared=True)) for _ in range(STREAMS)]
        await asyncio.sleep(0)  # the calls begin
        certified.rotate()
        assert gateway.refresh()
        assert await asyncio.gather(*asked) == [before] * STREAMS
        assert await describe(address, shared=True) == serial(gateway.files) != before
        await eventually(lambda: old.get_state() is grpc.ChannelConnectivity.SHUTDOWN)


async def test_a_public_server_has_tls_and_takes_callers_without_certificates(certified: Certified) -> None:
    certificates = certified.certificates("gateway")
    async with serving(Server(certificates=certificates, public=True)) as address:
        trusting = grpc.ssl_channel_credentials(certified.ca.read_bytes())
        async with grpc.aio.secure_channel(address, trusting) as to_server:
            answer = await rpc.TokenizerStub(to_server).Describe(pb.DescribeTokenizerRequest(), timeout=10)
            assert answer.model == "none"
        with pytest.raises(Unreachable):
            await describe(address)


async def test_a_socket_of_this_user_needs_no_certificate(certificates: Certificates, certified: Certified) -> None:
    path = new_socket("auto", private=True)
    if path is None:
        pytest.skip("there is no private directory for sockets")
    async with serving(Server(certificates=certificates, socket=path)) as address:
        secure_channels(certified.certificates("gateway"))
        assert await describe(local_target(address, str(path))) == "none"
        assert await describe(address) != "none"


def takes_calls(to_server: grpc.aio.Channel) -> bool:
    try:
        rpc.TokenizerStub(to_server).Describe(pb.DescribeTokenizerRequest()).cancel()
    except grpc.aio.UsageError:
        return False
    return True


async def served_serial(address: str) -> str:
    """Serial number of the certificate that the server shows to a new connection."""
    host, _, port = address.partition(":")
    pem = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    return str(x509.load_pem_x509_certificate(pem.encode()).serial_number)
