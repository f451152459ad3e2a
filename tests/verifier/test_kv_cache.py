"""Verifiers and KV caches as processes: answers stay the same with cold, warm and fetched pages and failing caches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.rpc import Server, channel, close_channels
from outrider.mesh.tasks import Tasks
from outrider.v1 import kvcache_pb2 as kv
from outrider.v1 import kvcache_pb2_grpc, sampling_pb2, verifier_pb2_grpc
from outrider.v1 import verifier_pb2 as pb
from outrider.verifier.pages.cached_pages import OfferedPages, WantedPages
from outrider.verifier.pages.link import CacheLink, FetchTerms
from outrider.verifier.pages.page_sender import PageSender
from outrider.verifier.pages.peers import Peers
from outrider.verifier.pages.receiver import Receiver
from outrider.verifier.pages.remote_prefill import PrefillPeers, RemotePrefill, RemotePrefillTerms
from outrider.wire.frames import Finish, Frame, Usage, decode_frame
from outrider.wire.ids import pack_ids
from outrider.wire.pages import page_checksum, page_key

from tests.processes import ServiceProcess, running
from tests.toy_model import save_toy
from tests.waiting import eventually

PAGE = 8
VERIFIERS = {"origin", "grpc", "shared", "other", "coded", "coded-too"}
PATIENT = {"kv_cache": "always", "kv_cache_deadline_s": 30}
Stub = verifier_pb2_grpc.VerifierStub


class Mesh:
    """Verifiers: ``origin``, whose pages others fetch by ``grpc`` and by ``shared`` memory; and a KV cache."""

    def __init__(self, registry: Registry, cache: ServiceProcess) -> None:
        self.registry, self.cache, self._asked = registry, cache, 0

    def member(self, kind: str, name: str) -> Member:
        return next(member for member in self.registry.members(kind) if member.instance == name)

    def stub(self, name: str) -> Stub:
        return Stub(channel(self.member("verifier", name).address))

    async def submit(
        self, name: str, prompt: Sequence[int], tenant: str = "t", temperature: float = 1.0, residency: str = ""
    ) -> str:
        self._asked += 1
        asked = pb.SubmitRequest(
            request_id=f"kv-{id(self):x}-{self._asked}",
            tenant=tenant,
            prompt=pack_ids(list(prompt)),
            sampling=sampling_pb2.SamplingParams(temperature=temperature, seed=17, max_tokens=12),
            residency=[residency] if residency else [],
        )
        await self.stub(name).Submit(asked)
        return asked.request_id

    async def frames(self, name: str, request: str) -> list[Frame]:
        call = self.stub(name).Follow(pb.FollowRequest(request_id=request))
        return [decode_frame(response.frame) async for response in call]

    async def ask(self, name: str, prompt: Sequence[int], **how: Any) -> tuple[list[int], int]:
        """Tokens of an answer, and how many of the prompt were cached."""
        frames = await self.frames(name, await self.submit(name, prompt, **how))
        usage: Usage | None = frames[-1].usage
        assert usage is not None
        return [token for frame in frames for token in frame.tokens], usage.cached_tokens

    async def store(self, prompt: Sequence[int], **how: Any) -> list[int]:
        """The origin's answer to a new prompt, whose pages the KV cache then holds."""
        before = self.pages()
        tokens, cached = await self.ask("origin", prompt, **how)
        assert cached == 0
        await eventually(lambda: self.pages() >= before + (len(prompt) + len(tokens) - 2) // PAGE)
        return tokens

    def pages(self) -> int:
        return int(self.member("kvcache", "cache").status["pages"])

    async def metric(self, name: str, metric: str, label: str = "") -> float:
        port = self.member("verifier", name).status["metrics_port"]
        async with httpx.AsyncClient(trust_env=False) as client:
            lines = (await client.get(f"http://127.0.0.1:{port}/metrics")).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric) and label in line)


def prompt(number: int, length: int = 45) -> list[int]:
    return [(number * 13 + index * (number + 3)) % 50 for index in range(length)]


@pytest.fixture(scope="module")
def processes(shared_nats: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    logs = tmp_path_factory.mktemp("logs")
    common = {"nats_url": shared_nats, "model": save_toy(logs / "toy", 50), "page_size": PAGE, "drafters": "[]"}
    other = common | {"model": save_toy(logs / "other", 50, seed=1)}
    verifiers = {
        "origin": common | PATIENT,
        "grpc": common | PATIENT | {"kv_cache_shared": "false", "sockets": ""},
        "shared": common | {"kv_cache": "always", "kv_cache_deadline_s": 3},
        "other": other | PATIENT,
        "coded": common | PATIENT | {"kv_dtype": "int8"},
        "coded-too": common | PATIENT | {"kv_dtype": "int8"},
    }
    cache = ServiceProcess("kvcache", logs / "cache.log", nats_url=shared_nats, instance="cache")
    with ExitStack() as stack:
        cache.start()
        stack.callback(cache.stop)
        for name, settings in verifiers.items():
            stack.enter_context(running("verifier", logs / f"{name}.log", instance=name, **settings))
        yield cache


@pytest.fixture
async def mesh(bus: Bus, processes: ServiceProcess) -> AsyncIterator[Mesh]:
    registry = Registry(bus, "test", "reader")
    await registry.start()
    await registry.wait_for("verifier", lambda members: {member.instance for member in members} >= VERIFIERS, 240)
    await registry.wait_for("kvcache", lambda members: any(member.instance == "cache" for member in members), 240)
    made = Mesh(registry, processes)
    await joined(made, {"cache"})
    yield made
    registry.leave()
    await close_channels()


async def joined(mesh: Mesh, instances: set[str]) -> None:
    """Returns when every verifier uses exactly these KV caches and has computed the fingerprint of its pages."""
    async with asyncio.timeout(60):
        for name in VERIFIERS:
            while await mesh.metric(name, "outrider_verifier_kv_caches ") != len(instances):
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(("number", "temperature"), [(1, 0.0), (2, 1.0)])
async def test_an_answer_is_the_same_cold_warm_and_fetched(mesh: Mesh, number: int, temperature: float) -> None:
    cold = await mesh.store(prompt(number), temperature=temperature)
    assert await mesh.ask("origin", prompt(number), temperature=temperature) == (cold, 40)
    before = await mesh.metric("shared", 'outrider_verifier_kv_fetched_bytes_total{transport="shared"}')
    assert await mesh.ask("grpc", prompt(number), temperature=temperature) == (cold, 40)
    assert await mesh.ask("shared", prompt(number), temperature=temperature) == (cold, 40)
    after = await mesh.metric("shared", 'outrider_verifier_kv_fetched_bytes_total{transport="shared"}')
    page = 2 * PAGE * 2 * 16 * 4
    assert after - before == 5 * page
    assert await mesh.metric("shared", "outrider_verifier_prefix_tokens_total", 'tier="kvcache"') >= 40
    assert await mesh.metric("grpc", 'outrider_verifier_kv_fetched_bytes_total{transport="tcp"}') > 0
    assert await mesh.metric("grpc", 'outrider_verifier_kv_fetched_bytes_total{transport="shared"}') == 0


async def test_what_was_generated_is_found_as_well(mesh: Mesh) -> None:
    answer = await mesh.store(prompt(3))
    _, cached = await mesh.ask("grpc", prompt(3) + answer)
    assert cached == 48


async def test_a_tenant_finds_no_page_of_another(mesh: Mesh) -> None:
    answer = await mesh.store(prompt(4))
    assert await mesh.ask("grpc", prompt(4), tenant="u") == (answer, 0)
    assert await mesh.ask("grpc", prompt(4)) == (answer, 40)


async def test_pages_of_a_tenant_whose_data_has_to_stay_go_to_no_cache_elsewhere_and_come_from_none(mesh: Mesh) -> None:
    before = mesh.pages()
    answer, _ = await mesh.ask("origin", prompt(7), residency="eu")
    after = await mesh.store(prompt(8))
    await eventually(lambda: mesh.pages() >= before + (45 + len(after) - 2) // PAGE)
    assert mesh.pages() == before + (45 + len(after) - 2) // PAGE
    assert await mesh.ask("grpc", prompt(8), residency="eu") == (after, 0)
    assert await mesh.ask("grpc", prompt(7)) == (answer, 0)


async def test_another_model_of_the_same_shape_finds_no_page(mesh: Mesh) -> None:
    answer = await mesh.store(prompt(5))
    before = mesh.pages()
    others, cached = await mesh.ask("other", prompt(5))
    assert cached == 0
    assert others != answer
    await eventually(lambda: mesh.pages() >= before + 5)
    assert await mesh.ask("other", prompt(5)) == (others, 40)


async def test_pages_in_int8_come_back_with_their_scales_and_to_such_verifiers_alone(mesh: Mesh) -> None:
    before = mesh.pages()
    answer, cached = await mesh.ask("coded", prompt(6))
    assert cached == 0
    await eventually(lambda: mesh.pages() >= before + (45 + len(answer) - 2) // PAGE)
    bytes_before = await mesh.metric("coded-too", "outrider_verifier_kv_fetched_bytes_total")
    assert await mesh.ask("coded-too", prompt(6)) == (answer, 40)
    fetched = await mesh.metric("coded-too", "outrider_verifier_kv_fetched_bytes_total") - bytes_before
    assert fetched == 5 * 2 * PAGE * 2 * (16 + 4)
    assert (await mesh.ask("origin", prompt(6)))[1] == 0


async def test_a_cache_that_is_frozen_costs_its_deadline_and_no_answer(mesh: Mesh) -> None:
    answer = await mesh.store(prompt(10))
    free = mesh.member("verifier", "grpc").status["free_pages"]
    mesh.cache.freeze()
    try:
        waiting = await mesh.submit("grpc", prompt(10))
        assert await mesh.ask("grpc", [1, 2, 3])
        assert (await mesh.stub("grpc").Cancel(pb.CancelRequest(request_id=waiting))).cancelled
        assert (await mesh.frames("grpc", waiting))[-1].finish is Finish.CANCELLED
        assert await mesh.ask("shared", prompt(10)) == (answer, 0)
    finally:
        mesh.cache.thaw()
    await mesh.registry.wait_for("kvcache", lambda members: any(m.instance == "cache" for m in members), 240)
    await eventually(lambda: mesh.member("verifier", "grpc").status["free_pages"] == free)


async def test_a_cache_may_be_killed_and_return_empty(mesh: Mesh) -> None:
    answers = [await mesh.store(prompt(number)) for number in range(20, 23)]
    mesh.cache.kill()
    assert await mesh.ask("grpc", prompt(20)) == (answers[0], 0)
    await joined(mesh, set())
    assert await mesh.ask("grpc", prompt(21)) == (answers[1], 0)
    mesh.cache.start()
    await mesh.registry.wait_for("kvcache", lambda members: any(m.instance == "cache" for m in members), 240)
    await joined(mesh, {"cache"})
    assert await mesh.ask("shared", prompt(22)) == (answers[2], 0)
    answer = await mesh.store(prompt(23))
    assert await mesh.ask("shared", prompt(23)) == (answer, 40)


async def test_pages_that_were_changed_in_memory_are_computed_anew(mesh: Mesh) -> None:
    answer = await mesh.store(prompt(30))
    spoil(mesh.member("kvcache", "cache"))
    assert await mesh.ask("shared", prompt(30)) == (answer, 0)


def spoil(cache: Member) -> None:
    """Flips a bit of every 512th byte of all pages."""
    with Path(cache.status["arena"]).open("r+b") as file:
        data = bytearray(file.read(4 << 20))
        for place in range(32 + 300, len(data), 512):
            data[place] ^= 1
        file.seek(0)
        file.write(data)


@pytest.mark.parametrize(("token_s", "fetched"), [(1000.0, 3), (1e-12, 0)])
async def test_pages_are_awaited_for_as_long_as_computing_them_would_take(
    mesh: Mesh, token_s: float, fetched: int
) -> None:
    fingerprint, hashes = b"f" * 32, [bytes([index]) * 32 for index in range(3)]
    pages = [kv.Page(key=page_key(fingerprint, "t", each), data=each, tokens=PAGE) for each in hashes]
    for page in pages:
        page.checksum = page_checksum(page.key, page.data)
    cache = kvcache_pb2_grpc.KvCacheStub(channel(mesh.member("kvcache", "cache").address))
    await cache.Store(iter([kv.StoreRequest(tenant="t", pages=pages)]))
    arrived, ended = list[bytes](), asyncio.Event()
    peers, tasks = Peers(mesh.registry, False, True, lambda: None), Tasks()
    receiver, prefill_peers = Receiver(PAGE, 32, tasks.spawn), PrefillPeers(mesh.registry, "both", True, lambda: None)
    link = CacheLink(
        peers,
        RemotePrefill(prefill_peers, receiver, RemotePrefillTerms("auto", 30, PAGE, 32)),
        receiver,
        tasks,
        FetchTerms("auto", 30, PAGE, 32, token_s),
        lambda _, pages: arrived.extend(pages),
        lambda _: ended.set(),
    )
    peers.start()
    link.open(fingerprint)
    assert link.fetch(WantedPages(1, "t", hashes, 0))
    await ended.wait()
    assert arrived == hashes[:fetched]
    await tasks.cancel()


async def test_pages_that_cannot_be_copied_do_not_stop_those_behind_them(mesh: Mesh) -> None:
    fingerprint, hashes = b"s" * 32, [bytes([index]) * 32 for index in range(2)]
    peers, tasks = Peers(mesh.registry, False, True, lambda: None), Tasks()
    peers.start()
    sender = PageSender(peers, tasks, PAGE, 1.0)
    sender.start(fingerprint)
    sound, broken = torch.zeros(1, 1, PAGE), torch.zeros(1, 0, PAGE)
    for copy, index in ((broken, 0), (sound, 1)):
        assert sender.wants("t", hashes[: index + 1], index) == [index]
        sender.take(OfferedPages("t", hashes, [index], [copy]))
    assert not await asyncio.wait_for(sender.all_sent(), 60)
    cache = kvcache_pb2_grpc.KvCacheStub(channel(mesh.member("kvcache", "cache").address))
    stored = await cache.Lookup(kv.LookupRequest(keys=[page_key(fingerprint, "t", hashes[1])]))
    assert stored.leading == 1
    assert sender.wants("t", hashes, 0) == [0]
    await tasks.cancel()


class Liar(kvcache_pb2_grpc.KvCacheServicer):
    """Speaks the protocol of a KV cache, and claims to hold everything."""

    def __init__(self, kind: str) -> None:
        self.kind, self.asked = kind, 0

    async def Lookup(self, message: kv.LookupRequest, context: Any) -> kv.LookupResponse:  # noqa: N802
        self.asked += 1
        return kv.LookupResponse(leading=10**6 if self.kind == "many" else len(message.keys))

    async def Fetch(self, message: kv.FetchRequest, context: Any) -> AsyncIterator[kv.FetchResponse]:  # noqa: N802
        size = {"short": 3}.get(self.kind, 2 * PAGE * 2 * 16 * 4)
        for key in message.keys:
            sent_key = b"x" * 32 if self.kind == "others" else key
            yield kv.FetchResponse(pages=[kv.Page(key=sent_key, data=bytes(size), checksum=0)])
        if self.kind == "stalls":
            await asyncio.sleep(60)


@asynccontextmanager
async def lying(bus: Bus, kind: str) -> AsyncIterator[Liar]:
    server, liar = Server(), Liar(kind)
    kvcache_pb2_grpc.add_KvCacheServicer_to_server(liar, server)
    await server.start()
    await server.set_serving(True)
    announced = Registry(bus, "kvcache", f"liar-{kind}", lambda: {"arena": "/dev/null", "arena_token": "zz"})
    announced.address = f"127.0.0.1:{server.port}"
    await announced.start()
    announced.set_state(State.READY)
    yield liar
    announced.leave()
    await server.stop(0)


async def test_nothing_that_a_lying_cache_says_is_believed(mesh: Mesh, bus: Bus) -> None:
    mesh.cache.terminate()
    mesh.cache.wait()
    await joined(mesh, set())
    for number, kind in enumerate(("checksum", "short", "others", "many"), 40):
        answer, _ = await mesh.ask("origin", prompt(number))
        async with lying(bus, kind) as liar:
            await joined(mesh, {kind})
            assert await mesh.ask("grpc", prompt(number)) == (answer, 0), kind
            assert liar.asked == 1
        await joined(mesh, set())
    mesh.cache.start()
    await mesh.registry.wait_for("kvcache", lambda members: any(m.instance == "cache" for m in members), 240)
