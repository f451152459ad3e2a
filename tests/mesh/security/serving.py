"""A server whose methods tell which certificate their caller has shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from outrider.mesh.rpc import Server, call, close_channels, stub
from outrider.mesh.security import Certificates, Files
from outrider.v1 import proposer_pb2_grpc
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc
from outrider.v1.proposer_pb2 import DraftRequest, DraftResponse, ProposerHello, VerifierHello

from tests.waiting import eventually

SHORT = timedelta(seconds=3)
"""A lifetime that a test can wait for."""


class Tokenizer(rpc.TokenizerServicer, proposer_pb2_grpc.ProposerServicer):
    """Answers with the serial number of the caller's certificate, once and in a stream."""

    async def Describe(self, request: Any, context: Any) -> pb.DescribeTokenizerResponse:  # noqa: N802
        return pb.DescribeTokenizerResponse(model=_shown(context))

    async def Draft(self, requests: Any, context: Any) -> AsyncIterator[DraftResponse]:  # noqa: N802
        async for request in requests:
            yield DraftResponse(hello=ProposerHello(instance=f"{request.hello.instance} {_shown(context)}"))


def _shown(context: Any) -> str:
    (pem,) = context.auth_context().get("x509_pem_cert", [b""])
    return str(x509.load_pem_x509_certificate(pem).serial_number) if pem else "none"


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    """The address of a server with the methods of `Tokenizer`; channels are closed behind the block."""
    rpc.add_TokenizerServicer_to_server(Tokenizer(), server)
    proposer_pb2_grpc.add_ProposerServicer_to_server(Tokenizer(), server)
    await server.start()
    await server.set_serving(True)
    yield f"127.0.0.1:{server.port}"
    await close_channels()
    await server.stop(0)


async def describe(address: str, kind: str = "tokenizer", *, shared: bool = False) -> str:
    """The serial number of this process's certificate, as the server sees it."""
    described = stub(rpc.TokenizerStub, address, kind, shared=shared)
    answer = await call(described.Describe, pb.DescribeTokenizerRequest(), 10)
    return str(answer.model)


async def exchange(stream: Any, text: str) -> str:
    """The answer to ``text`` in a stream: the text and the serial number."""
    await stream.write(DraftRequest(hello=VerifierHello(instance=text)))
    return str((await stream.read()).hello.instance)


def serial(files: Files) -> str:
    """The serial number of the certificate in the files."""
    return str(x509.load_pem_x509_certificate(files.certificate.read_bytes()).serial_number)


async def end_of(certificates: Certificates) -> None:
    """Waits until the certificate has expired for every library.

    TLS libraries compare whole seconds of a clock that may be a tick of the kernel late.
    """
    await eventually(lambda: datetime.now(UTC) > certificates.material.ends + timedelta(milliseconds=100))
