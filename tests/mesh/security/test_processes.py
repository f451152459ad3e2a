"""A service's process with certificates, from its start to its exit code."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry
from outrider.mesh.rpc import call, close_channels, secure_channels, stub
from outrider.mesh.tasks import Tasks
from outrider.v1 import tokenizer_pb2 as pb
from outrider.v1 import tokenizer_pb2_grpc as rpc

from tests.certificates import EXPIRED, Certified
from tests.mesh.processes import Tiny
from tests.waiting import eventually

Start = Callable[..., Tiny]


@pytest.fixture
def start(tmp_path: Path, shared_nats: str, certified: Certified) -> Iterator[Start]:
    """Starts a tiny service with its certificate, and with other settings where they are given."""
    started: list[Tiny] = []

    def start(**settings: str) -> Tiny:
        given = certified.settings | {"nats_url": shared_nats} | settings
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        started.append(Tiny(tmp_path / f"tiny-{len(started)}.log", *flags))
        return started[-1]

    yield start
    for tiny in started:
        tiny.kill()


async def test_a_process_serves_by_tls_and_renews_its_certificate(start: Start, certified: Certified, bus: Bus) -> None:
    certified.issue("tiny")
    tiny = start(instance="tiny-secure")
    tasks = Tasks()
    registry = Registry(bus, "test", "test-secure", tasks=tasks)
    await registry.start()
    (member,) = await registry.wait_for("tiny", bool, timeout=30)
    secure_channels(certified.certificates("gateway"))
    for _ in range(2):
        described = stub(rpc.TokenizerStub, member.address, "tiny").Describe
        assert (await call(described, pb.DescribeTokenizerRequest(), 10)).model == "tiny-secure"
        certified.rotate()
        await tiny.logged("a certificate was renewed")
        await close_channels()
        secure_channels(certified.certificates("gateway"))
    await close_channels()
    await tasks.cancel()


async def test_the_metrics_port_speaks_tls_on_request_and_shows_the_renewed_certificate(
    start: Start, certified: Certified
) -> None:
    certified.issue("tiny")
    port = hold_port()
    tiny = start(metrics_port=str(port), metrics_tls="true")
    await tiny.logged("ready")
    trusting = ssl.create_default_context(cafile=certified.ca)
    async with httpx.AsyncClient(verify=trusting, trust_env=False) as http:
        assert (await http.get(f"https://127.0.0.1:{port}/readyz")).json() == {"status": "ready"}
        with pytest.raises(httpx.TransportError):
            await http.get(f"http://127.0.0.1:{port}/readyz")
    certified.rotate()
    await tiny.logged("a certificate was renewed")
    shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    assert shown == (certified.directory.path / "tiny.crt").read_text()


async def test_the_metrics_port_needs_a_certificate_for_tls(start: Start, certified: Certified) -> None:
    tiny = start(metrics_tls="true", tls_certificate="", tls_key="", tls_ca="")
    assert await tiny.exit_code() == 2
    assert "metrics_tls is set and tls_certificate is not" in tiny.output


async def test_a_service_does_not_start_with_an_expired_certificate(start: Start, certified: Certified) -> None:
    certified.issue("tiny", EXPIRED)
    tiny = start()
    assert await tiny.exit_code() == 2
    path = certified.directory.path / "tiny.crt"
    (sentence,) = tiny.output.splitlines()
    assert sentence.startswith(f"outrider tiny: tls_certificate = '{path}' expired at ")
    assert sentence.endswith(" UTC: give a new certificate and its key")


async def test_a_service_does_not_start_with_the_certificate_of_another_kind(
    start: Start, certified: Certified
) -> None:
    other = certified.issue("verifier")
    tiny = start(tls_certificate=str(other.certificate), tls_key=str(other.key))
    assert await tiny.exit_code() == 2
    assert "is no certificate of a tiny" in tiny.output


async def test_a_service_does_not_start_with_half_of_the_settings(start: Start, certified: Certified) -> None:
    certified.issue("tiny")
    tiny = start(tls_ca="")
    assert await tiny.exit_code() == 2
    assert tiny.output == (
        "outrider tiny: tls_certificate is set and tls_ca is not: tls_certificate and tls_key and tls_ca go together\n"
    )


async def test_a_certificate_that_expires_while_the_process_runs_is_told_of(start: Start, certified: Certified) -> None:
    certified.issue("tiny", timedelta(seconds=20))
    tiny = start()
    await tiny.logged("ready")
    line = await tiny.logged("a certificate has expired")
    assert line["why"].startswith("tls_certificate = ")
    certified.issue("tiny")
    await eventually(lambda: tiny.count("a certificate was renewed"))
