"""Connections between services over TLS: who is refused, why the log says so, and renewal while streams run."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import Unreachable
from outrider.mesh.rpc import Server, call, channel, close_channels, local_target, new_socket, secure_channels, stub
from outrider.mesh.security import Certificates, Files
from outrider.mesh.security.refusals import refusal
from outrider.v1 import proposer_pb2_grpc
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc
from outrider.v1.proposer_pb2 import DraftRequest, DraftResponse, ProposerHello, VerifierHello
from structlog.testing import capture_logs

from tests.certificates import Certified
from tests.waiting import eventually

STREAMS = 8
SHORT = timedelta(seconds=3)


class Tokenizer(rpc.TokenizerServicer, proposer_pb2_grpc.ProposerServicer):
    """Answers with the serial number of the caller's certificate, once and in a stream."""

    async def Describe(self, request: Any, context: Any) -> pb.DescribeTokenizerResponse:  # noqa: N802
        return pb.DescribeTokenizerResponse(model=_serial(context))

    async def Draft(self, requests: Any, context: Any) -> AsyncIterator[DraftResponse]:  # noqa: N802
        async for request in requests:
            yield DraftResponse(hello=ProposerHello(instance=f"{request.hello.instance} {_serial(context)}"))


def _serial(context: Any) -> str:
    (pem,) = context.auth_context().get("x509_pem_cert", [b""])
    return str(x509.load_pem_x509_certificate(pem).serial_number) if pem else "none"


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(tmp_path / "authority")


@pytest.fixture
def certificates(certified: Certified) -> Certificates:
    """The tokenizer's."""
    return certified.certificates("tokenizer")


@pytest.fixture
async def address(certificates: Certificates) -> AsyncIterator[str]:
    """Address of a tokenizer."""
    async with serving(Server(certificates=certificates)) as address:
        yield address


class serving:  # noqa: N801 - it reads as a verb
    """A server with the methods of `Tokenizer`, inside the block; the channels are closed behind it."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __aenter__(self) -> str:
        rpc.add_TokenizerServicer_to_server(Tokenizer(), self._server)
        proposer_pb2_grpc.add_ProposerServicer_to_server(Tokenizer(), self._server)
        await self._server.start()
        await self._server.set_serving(True)
        return f"127.0.0.1:{self._server.port}"

    async def __aexit__(self, *_: object) -> None:
        await close_channels()
        await self._server.stop(0)


async def describe(address: str, kind: str = "tokenizer") -> str:
    """The serial number of this process's certificate, as the server sees it."""
    answer = await call(stub(rpc.TokenizerStub, address, kind).Describe, pb.DescribeTokenizerRequest(), 10)
    return str(answer.model)


def serial(files: Files) -> str:
    return str(x509.load_pem_x509_certificate(files.certificate.read_bytes()).serial_number)


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


async def test_the_log_says_why_a_server_is_not_the_expected_one(certified: Certified, address: str) -> None:
    secure_channels(certified.certificates("gateway"))
    with capture_logs() as logs:
        with pytest.raises(Unreachable):
            await describe(address, "verifier")
        await eventually(lambda: _told(logs))
    assert _told(logs) == [f"the certificate of the verifier at {address} is not that of a verifier"]


async def test_a_caller_without_a_certificate_is_refused(certified: Certified, address: str) -> None:
    trusting = grpc.ssl_channel_credentials(certified.ca.read_bytes())
    async with grpc.aio.secure_channel(address, trusting) as to_server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rpc.TokenizerStub(to_server).Describe(pb.DescribeTokenizerRequest(), timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_in_the_clear_is_refused(address: str) -> None:
    with pytest.raises(Unreachable):
        await describe(address)


async def test_a_caller_of_another_authority_is_refused_on_both_sides(
    certified: Certified, address: str, tmp_path: Path
) -> None:
    foreign = Certified(tmp_path / "foreign")
    stranger = foreign.certificates("gateway")
    secure_channels(stranger)
    with pytest.raises(Unreachable):
        await describe(address)
    why = await refusal(address, "tokenizer", stranger)
    assert (
        why == f"the certificate of the tokenizer at {address} is not trusted: unable to get local issuer certificate"
    )


async def test_a_caller_whose_authority_the_server_does_not_trust_is_refused(
    certified: Certified, address: str, tmp_path: Path
) -> None:
    files = Certified(tmp_path / "foreign").issue("gateway")
    stranger = Certificates(Files("tls", files.certificate, files.key, certified.ca), "gateway")
    secure_channels(stranger)
    with pytest.raises(Unreachable):
        await describe(address)
    why = await refusal(address, "tokenizer", stranger)
    assert why is not None
    assert why.startswith(f"the tokenizer at {address} refused the certificate of this process")


async def test_an_expired_server_is_refused_and_the_callers_log_says_so(certified: Certified) -> None:
    ending = Certificates(certified.issue("tokenizer", SHORT), "tokenizer")
    async with serving(Server(certificates=ending)) as address:
        await end_of(ending)
        secure_channels(certified.certificates("gateway"))
        with capture_logs() as logs:
            with pytest.raises(Unreachable):
                await describe(address)
            await eventually(lambda: _told(logs))
    assert _told(logs) == [f"the certificate of the tokenizer at {address} has expired"]


async def test_the_log_says_why_a_server_that_was_away_is_refused_when_it_is_back(certified: Certified) -> None:
    port = hold_port()
    address = f"127.0.0.1:{port}"
    secure_channels(certified.certificates("gateway"))
    with capture_logs() as logs:
        with pytest.raises(Unreachable):
            await describe(address)
        async with serving(Server(port=port, certificates=certified.certificates("verifier"))):
            await eventually(lambda: _told(logs))
    assert _told(logs) == [f"the certificate of the tokenizer at {address} is not that of a tokenizer"]


async def test_an_expired_caller_is_refused_and_its_own_log_says_so(certified: Certified, address: str) -> None:
    caller = Certificates(certified.issue("gateway", SHORT), "gateway")
    secure_channels(caller)
    await end_of(caller)
    with capture_logs() as logs:
        with pytest.raises(Unreachable):
            await describe(address)
        await eventually(lambda: _told(logs))
    (why,) = _told(logs)
    assert why.startswith(f"tls_certificate = '{caller.files.certificate}' expired at 20")
    assert why.endswith(" UTC: give a new certificate and its key")


async def test_a_caller_by_tls_of_a_server_in_the_clear_is_told_so(certified: Certified) -> None:
    async with serving(Server()) as clear:
        gateway = certified.certificates("gateway")
        secure_channels(gateway)
        with pytest.raises(Unreachable):
            await describe(clear)
        assert await refusal(clear, "tokenizer", gateway) == f"the tokenizer at {clear} does not speak TLS"


async def test_a_process_that_is_gone_is_no_matter_of_certificates(certified: Certified, unused_tcp_port: int) -> None:
    gateway = certified.certificates("gateway")
    assert await refusal(f"127.0.0.1:{unused_tcp_port}", "tokenizer", gateway) is None


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


async def exchange(stream: Any, text: str) -> str:
    await stream.write(DraftRequest(hello=VerifierHello(instance=text)))
    return str((await stream.read()).hello.instance)


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


async def end_of(certificates: Certificates) -> None:
    """Waits until the certificate has expired."""
    await eventually(lambda: datetime.now(UTC) > certificates.material.ends)


def _told(logs: Any) -> list[str]:
    return [line["why"] for line in logs if line["event"] == "a service cannot be reached over TLS"]
