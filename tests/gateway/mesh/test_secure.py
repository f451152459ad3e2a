"""A whole mesh with TLS on every connection but those of NATS, and its certificates renewed while it answers."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from outrider.mesh.errors import PermissionDenied, Unreachable
from outrider.mesh.registry import Member, Registry
from outrider.mesh.rpc import call, close_channels, secure_channels, stub
from outrider.v1 import inference_pb2, inference_pb2_grpc, verifier_pb2, verifier_pb2_grpc

from tests.certificates import Certified
from tests.gateway.stack import MODEL, Stack, Streamed, stack
from tests.latch import FEW
from tests.processes import ALWAYS
from tests.reading import reading
from tests.waiting import eventually

KINDS = ("gateway", "tokenizer", "proposer", "verifier", "kvcache")
STREAMS = 8
LENGTH = 150
PROMPT = "def f(" * 20


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    """The mesh's authority; HTTP clients of this process trust it."""
    made = Certified(tmp_path_factory.mktemp("authority") / "certs")
    for kind in KINDS:
        made.issue(kind)
    made.issue("gateway", name="door")
    before = dict(os.environ)
    os.environ["SSL_CERT_FILE"] = str(made.ca)
    yield made
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def mesh(certified: Certified, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Services of every kind, without shared memory and Unix sockets: all they tell each other goes through TLS."""
    door = {
        f"door_{name}": certified.directory.path / f"door.{end}"
        for name, end in (("certificate", "crt"), ("key", "key"))
    }
    pages = {"sockets": "", "kv_cache_shared": "false", "kv_cache": "always", "kv_cache_deadline_s": 20}
    decode = {
        "role": "decode",
        "handover": "always",
        "handover_deadline_s": 20,
        "program": ALWAYS,
        "max_running": STREAMS,
    }
    with stack(directory, tmp_path_factory.mktemp("logs")) as made:
        made.common, made.scheme = certified.settings, "https"
        made.add("kvcache", instance="cache", sockets="")
        made.add("gateway", instance="gateway", port=made.port, grpc_port=made.grpc_port, **door)
        made.add_model("tokenizer", instance="tokenizer")
        made.add("proposer", instance="proposer", model=directory)
        made.add_model("verifier", instance="prefill", role="prefill", **pages)
        made.add_model("verifier", instance="decode", **pages | decode)
        made.wait_ready()
        yield made


@pytest.fixture
async def registry(mesh: Stack) -> AsyncIterator[Registry]:
    async with reading(mesh.broker.url) as reader:
        yield reader


@pytest.fixture
async def members(registry: Registry) -> list[Member]:
    """All processes of the mesh."""
    wanted = {"cache", "gateway", "tokenizer", "proposer", "prefill", "decode"}
    found: list[Member] = []
    async with asyncio.timeout(120):
        while {member.instance for member in found} != wanted:
            found = [member for kind in KINDS for member in registry.members(kind)]
            await asyncio.sleep(0.05)
    return found


def logged(mesh: Stack, event: str) -> list[int]:
    """How often each process has logged an event."""
    return [process.log.read_text().count(f'"event": "{event}"') for process in mesh.processes]


async def metric(member: Member, name: str) -> float:
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{member.status['metrics_port']}/metrics")).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


async def test_a_completion_is_answered_with_the_help_of_every_service(mesh: Stack, members: list[Member]) -> None:
    by_name = {member.instance: member for member in members}
    async with asyncio.timeout(120):
        while not (
            await metric(by_name["decode"], "outrider_verifier_kv_givers ")
            and await metric(by_name["decode"], "outrider_verifier_kv_caches ")
        ):
            await asyncio.sleep(0.05)
    await eventually(lambda: any(logged(mesh, "proposer joined")))
    streamed = Streamed(mesh.url, prompt=PROMPT, max_tokens=LENGTH, temperature=1, seed=1)
    await streamed.run()
    assert len(streamed.tokens) == LENGTH
    handed = 'outrider_verifier_kv_handovers_total{outcome="hit"}'
    assert await metric(by_name["decode"], handed) > 0
    async with asyncio.timeout(60):
        while not await metric(by_name["cache"], "outrider_kvcache_pages{"):
            await asyncio.sleep(0.05)
    assert not any(logged(mesh, "a service cannot be reached over TLS"))


async def test_the_grpc_api_asks_for_no_certificate(mesh: Stack, certified: Certified) -> None:
    trusting = grpc.ssl_channel_credentials(certified.ca.read_bytes())
    async with grpc.aio.secure_channel(mesh.grpc, trusting) as to_gateway:
        models = await inference_pb2_grpc.InferenceStub(to_gateway).ListModels(inference_pb2.ListModelsRequest())
    assert list(models.models) == [MODEL]


async def test_no_grpc_port_takes_connections_in_the_clear(mesh: Stack, members: list[Member]) -> None:
    for address in (mesh.grpc, *(member.address for member in members)):
        async with grpc.aio.insecure_channel(address) as in_the_clear:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await health_pb2_grpc.HealthStub(in_the_clear).Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_service_refuses_who_has_no_business_with_it(
    members: list[Member], certified: Certified, tmp_path: Path
) -> None:
    verifier = next(member for member in members if member.instance == "decode")
    secure_channels(certified.certificates("client"))
    with pytest.raises(PermissionDenied, match=r"^a client may not call outrider.v1.Verifier: only a gateway of"):
        await describe(verifier.address)
    await close_channels()
    secure_channels(Certified(tmp_path / "foreign").certificates("gateway"))
    with pytest.raises(Unreachable):
        await describe(verifier.address)
    await close_channels()
    secure_channels(certified.certificates("gateway"))
    assert (await describe(verifier.address)).model == MODEL


async def test_streams_lose_nothing_while_all_certificates_are_renewed(mesh: Stack, certified: Certified) -> None:
    undisturbed = streams(mesh)
    await asyncio.gather(*(each.run() for each in undisturbed))
    disturbed = streams(mesh)
    with mesh.latch.at(FEW):
        running = [asyncio.create_task(each.run()) for each in disturbed]
        await eventually(lambda: all(len(each.tokens) >= FEW for each in disturbed))
        for _ in range(2):
            renewed = logged(mesh, "a certificate was renewed")
            certified.rotate()
            await eventually(
                lambda before=renewed: all(map(int.__lt__, before, logged(mesh, "a certificate was renewed")))
            )
    await asyncio.gather(*running)
    assert [each.tokens for each in disturbed] == [each.tokens for each in undisturbed]
    assert [each.text for each in disturbed] == [each.text for each in undisturbed]
    assert not any(logged(mesh, "a certificate was not renewed"))


async def test_a_service_that_joins_later_is_served_by_renewed_certificates(
    mesh: Stack, certified: Certified, registry: Registry
) -> None:
    certified.rotate()
    for name in ("joined", "joined-too"):
        late = mesh.add_model("verifier", instance=name, sockets="")
        await registry.wait_for("verifier", lambda all_, name=name: name in {each.instance for each in all_}, 240)
        streamed = Streamed(mesh.url, prompt=name, max_tokens=10)
        await streamed.run()
        assert len(streamed.tokens) == 10
        late.stop()


async def test_the_http_api_shows_the_renewed_certificate(mesh: Stack, certified: Certified) -> None:
    certified.rotate()
    expected = (certified.directory.path / "door.crt").read_text()

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", mesh.port))

    async with asyncio.timeout(60):
        while await asyncio.to_thread(shown) != expected:
            await asyncio.sleep(0.1)
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{mesh.url}/readyz")).status_code == 200


def streams(mesh: Stack) -> list[Streamed]:
    return [
        Streamed(mesh.url, prompt=f"{number} {PROMPT}", max_tokens=LENGTH, temperature=1, seed=number)
        for number in range(STREAMS)
    ]


async def describe(address: str) -> verifier_pb2.DescribeResponse:
    ask = stub(verifier_pb2_grpc.VerifierStub, address, "verifier").Describe
    answer: verifier_pb2.DescribeResponse = await call(ask, verifier_pb2.DescribeRequest(), 20)
    return answer
