"""The HTTP port with a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from outrider.gateway.api.http.server import HttpServer
from outrider.mesh.security import Certificates
from outrider.mesh.security.contexts import ServerContext
from outrider.mesh.tasks import Tasks
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.certificates import DAY, EXPIRED, Certified
from tests.processes import ServiceProcess

PARTS = 200


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """The scheme of the request; a stream of parts at /stream."""
    if scope["path"] != "/stream":
        return await PlainTextResponse(scope["scheme"])(scope, receive, send)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(PARTS):
        await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
        await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(tmp_path / "authority")


@pytest.fixture
def certificates(certified: Certified) -> Certificates:
    return Certificates(certified.issue("gateway"))


@pytest.fixture
async def port(certificates: Certificates) -> AsyncIterator[int]:
    tasks = Tasks()
    server = HttpServer(answer, "127.0.0.1", 0, tls=ServerContext(certificates, ["http/1.1"]).context)
    server.start(tasks)
    yield server.port
    await server.stop()


@pytest.fixture
def trusting(certified: Certified) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certified.ca)


async def test_requests_are_answered_over_tls(port: int, trusting: ssl.SSLContext) -> None:
    async with httpx.AsyncClient(verify=trusting) as client:
        for host in ("localhost", "127.0.0.1"):
            assert (await client.get(f"https://{host}:{port}/")).text == "https"


async def test_a_client_that_does_not_know_the_authority_gets_no_answer(port: int) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get(f"https://127.0.0.1:{port}/")


async def test_a_client_in_the_clear_gets_no_answer(port: int) -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_a_renewed_certificate_is_shown_to_new_connections_and_streams_go_on(
    port: int, trusting: ssl.SSLContext, certified: Certified, certificates: Certificates
) -> None:
    async with httpx.AsyncClient(verify=trusting) as client:
        async with client.stream("GET", f"https://127.0.0.1:{port}/stream") as response:
            lines = response.aiter_lines()
            assert await anext(lines) == "0"
            before = await shown(port, trusting)
            certified.rotate()
            assert certificates.refresh()
            assert await shown(port, trusting) != before
            assert [line async for line in lines] == [str(number) for number in range(1, PARTS)]
        assert (await client.get(f"https://127.0.0.1:{port}/")).text == "https"


async def test_a_refused_request_gets_its_whole_answer_and_no_failure_is_left_behind(
    port: int, trusting: ssl.SSLContext
) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, details: failures.append(details))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    writer.write(b"no HTTP\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"}")
    assert not failures
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("lifetime", "key", "sentence"),
    [
        (EXPIRED, "door.key", "outrider gateway: door_certificate = '{certificate}' expired at 20"),
        (DAY, "", "outrider gateway: door_certificate is set and door_key is not: "),
        (DAY, "ca.key", "outrider gateway: door_key = '{key}' is not the key of the certificate '{certificate}'"),
    ],
)
def test_a_gateway_does_not_start_with_a_certificate_that_it_cannot_use(
    lifetime: timedelta, key: str, sentence: str, certified: Certified, shared_nats: str, tmp_path: Path
) -> None:
    door, folder = certified.issue("gateway", lifetime, name="door"), certified.directory.path
    given = {"door_certificate": door.certificate, "door_key": folder / key if key else ""}
    gateway = ServiceProcess("gateway", tmp_path / "gateway.log", nats_url=shared_nats, port=0, **given)
    gateway.start()
    assert gateway.wait() == 2
    assert sentence.format(certificate=door.certificate, key=folder / key) in gateway.last_lines()


async def shown(port: int, trusting: ssl.SSLContext) -> str:
    """Serial number of the certificate that a new connection sees."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    number = str(writer.get_extra_info("ssl_object").getpeercert()["serialNumber"])
    writer.close()
    await writer.wait_closed()
    return number
