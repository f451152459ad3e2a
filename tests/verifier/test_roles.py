"""Verifiers that compute prompts for others: answers stay the same if the asked verifier fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Literal

import grpc
import httpx
import pytest
from outrider.engine.pages.page_names import chain_hashes
from outrider.mesh.bus import Bus
from outrider.mesh.errors import DeadlineUnmeetable, InvalidRequest, OutriderError, from_rpc
from outrider.mesh.registry import Member, Registry, State
from outrider.mesh.rpc import Server, channel, close_channels
from outrider.mesh.tasks import Tasks
from outrider.v1 import kvcache_pb2 as kv
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.kvcache_pb2_grpc import KvCacheServicer, KvCacheStub, add_KvCacheServicer_to_server
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.verifier.pages.cached_pages import Prompt, WantedPages
from outrider.verifier.pages.receiver import PageArrivals, Receiver
from outrider.verifier.pages.remote_prefill import PrefillPeers, RemotePrefill, RemotePrefillTerms
from outrider.wire.frames import Finish, Frame, Usage, decode_frame
from outrider.wire.ids import pack_ids

from tests.processes import ServiceProcess, running
from tests.toy_model import save_toy
from tests.waiting import eventually

PAGE = 8
PAGE_BYTES = 2 * PAGE * 2 * 16 * 4
COMMON = {"page_size": PAGE, "drafters": "[]", "kv_cache": "off", "prefill_rows": 16}


class Mesh:
    """``decode`` asks ``prefill`` for every prompt."""

    def __init__(self, registry: Registry, giver: ServiceProcess) -> None:
        self.registry, self.giver, self._asked = registry, giver, 0

    def member(self, name: str) -> Member:
        return next(member for member in self.registry.members("verifier") if member.instance == name)

    def stub(self, name: str) -> VerifierStub:
        return VerifierStub(channel(self.member(name).address))

    @property
    def giving(self) -> KvCacheStub:
        return KvCacheStub(channel(self.member("prefill").address))

    async def submit(
        self, name: str, prompt: Sequence[int], tenant: str = "t", residency: Sequence[str] = (), **sampling: Any
    ) -> str:
        self._asked += 1
        asked = pb.SubmitRequest(
            request_id=f"roles-{id(self):x}-{self._asked}",
            tenant=tenant,
            prompt=pack_ids(list(prompt)),
            sampling=sampling_pb2.SamplingParams(**{"temperature": 1.0, "seed": 17, "max_tokens": 12} | sampling),
            residency=residency,
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

    async def expected(self, prompt: Sequence[int], **how: Any) -> list[int]:
        """The answer of the asked verifier itself, for another tenant."""
        tokens, _ = await self.ask("prefill", prompt, **how | {"tenant": "reference"})
        return tokens

    async def metric(self, name: str, metric: str, label: str = "") -> float:
        port = self.member(name).status["metrics_port"]
        async with httpx.AsyncClient(trust_env=False) as client:
            lines = (await client.get(f"http://127.0.0.1:{port}/metrics")).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric) and label in line)

    async def outcomes(self, outcome: str) -> float:
        return await self.metric("decode", f'outrider_verifier_kv_handovers_total{{outcome="{outcome}"}}')

    async def knows(self, givers: int) -> None:
        """Returns when ``decode`` may ask so many verifiers."""
        async with asyncio.timeout(60):
            while await self.metric("decode", "outrider_verifier_kv_givers ") != givers:
                await asyncio.sleep(0.05)


def prompt(number: int, length: int = 101) -> list[int]:
    return [(number * 13 + index * (number + 3)) % 50 for index in range(length)]


@pytest.fixture(scope="module")
def giver(shared_nats: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    logs = tmp_path_factory.mktemp("logs")
    common = COMMON | {"nats_url": shared_nats, "model": save_toy(logs / "toy", 50)}
    taker = common | {"role": "decode", "handover": "always", "handover_deadline_s": 1}
    process = ServiceProcess("verifier", logs / "prefill.log", instance="prefill", role="prefill", **common)
    with ExitStack() as stack:
        process.start()
        stack.callback(process.stop)
        stack.enter_context(running("verifier", logs / "decode.log", instance="decode", **taker))
        yield process


@pytest.fixture
async def mesh(bus: Bus, giver: ServiceProcess) -> AsyncIterator[Mesh]:
    registry = Registry(bus, "test", "reader")
    await registry.start()
    names = {"prefill", "decode"}
    await registry.wait_for("verifier", lambda all_: {member.instance for member in all_} >= names, 240)
    made = Mesh(registry, giver)
    await made.knows(1)
    yield made
    registry.leave()
    await close_channels()


@pytest.mark.parametrize(("number", "temperature"), [(1, 0.0), (2, 1.0)])
async def test_an_answer_is_the_same_where_another_has_computed_its_prompt(
    mesh: Mesh, number: int, temperature: float
) -> None:
    expected = await mesh.expected(prompt(number), temperature=temperature)
    handed = await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total")
    assert await mesh.ask("decode", prompt(number), temperature=temperature) == (expected, 96)
    assert await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total") == handed + 96
    longer = [*prompt(number), *prompt(number + 50, 40)]
    assert await mesh.ask("decode", longer, temperature=temperature) == (
        await mesh.expected(longer, temperature=temperature),
        136,
    )
    assert await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total") == handed + 136
    assert await mesh.metric("decode", 'outrider_verifier_kv_fetched_bytes_total{transport="unix"}') > 0
    assert await mesh.metric("decode", "outrider_verifier_prefix_tokens_total", 'tier="peer"') >= 96


async def test_a_prompt_that_has_to_stay_is_handed_to_no_verifier_elsewhere(mesh: Mesh) -> None:
    expected = await mesh.expected(prompt(4))
    handed = await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total")
    assert await mesh.ask("decode", prompt(4), residency=["eu"]) == (expected, 0)
    assert await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total") == handed


async def test_pages_of_one_tenant_are_handed_to_no_other(mesh: Mesh) -> None:
    expected = await mesh.expected(prompt(3))
    handed = await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total")
    for tenant in ("t", "u"):
        assert await mesh.ask("decode", prompt(3), tenant=tenant) == (expected, 96)
    assert await mesh.metric("prefill", "outrider_verifier_kv_handed_tokens_total") == handed + 2 * 96


async def test_a_prompt_whose_log_probabilities_are_wanted_is_computed_where_they_are_told(mesh: Mesh) -> None:
    before = await mesh.outcomes("hit")
    _, cached = await mesh.ask("decode", prompt(4), echo=True, logprobs=1)
    assert cached == 0
    assert await mesh.outcomes("hit") == before


async def test_a_prompt_that_was_cancelled_holds_no_page_anywhere(mesh: Mesh) -> None:
    free = [mesh.member(name).status["free_pages"] for name in ("prefill", "decode")]
    mesh.giver.freeze()
    try:
        waiting = await mesh.submit("decode", prompt(5))
        assert (await mesh.stub("decode").Cancel(pb.CancelRequest(request_id=waiting))).cancelled
        assert (await mesh.frames("decode", waiting))[-1].finish is Finish.CANCELLED
    finally:
        mesh.giver.thaw()
    await mesh.knows(1)
    for name, count in zip(("prefill", "decode"), free, strict=True):
        await eventually(lambda name=name, count=count: _holds(mesh, name) == (count, 0))


def _holds(mesh: Mesh, name: str) -> tuple[int, int]:
    """Free pages and load of a verifier, as last announced."""
    status = mesh.member(name).status
    return status["free_pages"], status["load"]


async def test_a_verifier_that_is_frozen_costs_the_deadline_and_no_answer(mesh: Mesh) -> None:
    expected, late = await mesh.expected(prompt(6)), await mesh.outcomes("late")
    mesh.giver.freeze()
    try:
        assert await mesh.ask("decode", prompt(6)) == (expected, 0)
    finally:
        mesh.giver.thaw()
    assert await mesh.outcomes("late") == late + 1
    await mesh.knows(1)


async def test_nobody_hears_the_answer_of_a_request_whose_pages_alone_are_wanted(mesh: Mesh, bus: Bus) -> None:
    heard: set[str] = set()
    await bus.subscribe("tok.listened.*", lambda message: heard.add(message.subject.rpartition(".")[2]))
    asked = await mesh.submit("decode", prompt(20), tenant="listened")
    assert (await mesh.frames("decode", asked))[-1].finish is Finish.LENGTH
    await eventually(lambda: asked in heard)
    assert heard == {asked}


class Asker:
    """Asks the verifier that computes prompts as another verifier would."""

    def __init__(self, mesh: Mesh, tokens: list[int], mode: Literal["auto", "always", "off"] = "auto") -> None:
        status, self._tokens = mesh.member("prefill").status, tokens
        self._hashes = chain_hashes(status["vocabulary"].encode(), "t", tokens, PAGE)
        receiver = Receiver(PAGE, PAGE_BYTES, Tasks().spawn)
        prefill_peers = PrefillPeers(mesh.registry, "decode", True, lambda: None)
        self._remote_prefill = RemotePrefill(prefill_peers, receiver, RemotePrefillTerms(mode, 30, PAGE, PAGE_BYTES))
        prefill_peers.start()
        self._remote_prefill.open(bytes.fromhex(status["pages_of"]))

    async def run(self, seconds: float, before: int = 0) -> list[bytes]:
        """Pages that arrive if ``before`` pages have arrived from a KV cache and computing would cost ``seconds``."""
        wanted = WantedPages(1, "t", self._hashes, 0, Prompt(self._tokens, 0, 1.0, seconds))
        landed: list[tuple[int, bytes]] = []
        arrivals = PageArrivals(wanted, lambda at, pages: landed.extend(enumerate(pages, at.present)))
        arrivals.add([b""] * before)
        landed.clear()
        await self._remote_prefill.run(wanted, arrivals)
        assert [place for place, _ in landed] == list(range(before, before + len(landed)))
        return [data for _, data in landed]


async def test_only_what_has_not_come_from_elsewhere_is_asked_for_and_only_where_it_pays(mesh: Mesh) -> None:
    asker = Asker(mesh, prompt(21, 33))
    pages = await asker.run(1000.0)
    assert len(set(pages)) == 4
    assert await asker.run(1000.0, before=1) == pages[1:]
    assert await asker.run(1000.0, before=4) == []
    assert await asker.run(1e-9) == []
    assert await Asker(mesh, prompt(21, 33), "off").run(1000.0) == []
    assert await Asker(mesh, prompt(21, 33), "always").run(1e-9) == pages


def fetching(tokens: Sequence[int], pages: int, first: int = 0, within_ms: int = 60_000) -> kv.FetchRequest:
    prefill = kv.Prefill(tenant="t", tokens=pack_ids(list(tokens)), first=first, within_ms=within_ms)
    return kv.FetchRequest(keys=[bytes(32)] * pages, prefill=prefill)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (kv.FetchRequest(keys=[bytes(32)]), "prefill"),
        (fetching(prompt(1, 33), 3), "prefill.tokens"),
        (fetching(prompt(1, 33), 4, within_ms=0), "prefill.within_ms"),
        (fetching([*prompt(1, 32), 50], 4), "prompt"),
    ],
)
async def test_what_is_asked_wrongly_is_refused_by_name(mesh: Mesh, request_: kv.FetchRequest, says: str) -> None:
    error = await refused(mesh, request_)
    assert isinstance(error, InvalidRequest)
    assert error.param == says


async def refused(mesh: Mesh, request: kv.FetchRequest) -> OutriderError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [response async for response in mesh.giving.Fetch(request)]
    return from_rpc(caught.value)


async def test_what_cannot_be_there_in_time_is_refused_at_once(mesh: Mesh) -> None:
    assert isinstance(await refused(mesh, fetching(prompt(1, 249), 31, within_ms=1)), DeadlineUnmeetable)


class Half(KvCacheServicer):
    """Passes on the first pages that another verifier computes, and then fails or stalls."""

    def __init__(self, giver: KvCacheStub, pages: int, stalls: bool) -> None:
        self._giver, self._pages, self._stalls = giver, pages, stalls

    async def Fetch(self, message: kv.FetchRequest, context: Any) -> AsyncIterator[kv.FetchResponse]:  # noqa: N802
        pages = [page async for response in self._giver.Fetch(message) for page in response.pages]
        yield kv.FetchResponse(pages=pages[: self._pages])
        if self._stalls:
            await asyncio.sleep(60)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


@asynccontextmanager
async def half(bus: Bus, mesh: Mesh, pages: int, stalls: bool) -> AsyncIterator[None]:
    """Replaces the verifier that computes prompts: it announces a higher speed, so that it is asked first."""
    server = Server()
    add_KvCacheServicer_to_server(Half(mesh.giving, pages, stalls), server)
    await server.start()
    await server.set_serving(True)
    status = {key: mesh.member("prefill").status[key] for key in ("role", "pages_of")} | {"prefill_tokens_per_s": 1e9}
    announced = Registry(bus, "verifier", f"half-{stalls}", lambda: status)
    announced.address = f"127.0.0.1:{server.port}"
    await announced.start()
    announced.set_state(State.READY)
    await mesh.knows(2)
    yield
    announced.leave()
    await server.stop(0)
    await mesh.knows(1)


@pytest.mark.parametrize("stalls", [False, True])
async def test_pages_that_came_before_it_failed_are_used(mesh: Mesh, bus: Bus, stalls: bool) -> None:
    expected = await mesh.expected(prompt(10 + stalls))
    async with half(bus, mesh, 5, stalls):
        assert await mesh.ask("decode", prompt(10 + stalls)) == (expected, 40)


async def test_a_verifier_may_be_killed_while_it_is_asked(mesh: Mesh) -> None:
    """The last test of this module: the verifier stays down."""
    expected, failed = await mesh.expected(prompt(7)), await mesh.outcomes("failed")
    mesh.giver.freeze()
    asked = await mesh.submit("decode", prompt(7))
    mesh.giver.kill()
    frames = await mesh.frames("decode", asked)
    assert [token for frame in frames for token in frame.tokens] == expected
    assert await mesh.outcomes("failed") == failed + 1
    await mesh.knows(0)
    assert (await mesh.ask("decode", prompt(8)))[1] == 0
