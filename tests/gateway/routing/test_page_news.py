"""News of verifiers' pages over a real broker, and a gateway's page map."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from secrets import token_hex

import pytest
from outrider.engine.pages.page_names import chain_hashes
from outrider.gateway import metrics
from outrider.gateway.routing import Ask, Replica
from outrider.gateway.routing.page_map import PageMap
from outrider.gateway.routing.page_reader import PageReader
from outrider.gateway.routing.prefix import Prefix
from outrider.mesh.bus import Bus, Message
from outrider.mesh.registry import Member, Registry
from outrider.mesh.rpc import channel, close_channels
from outrider.mesh.tasks import Tasks
from outrider.v1 import sampling_pb2
from outrider.v1 import verifier_pb2 as pb
from outrider.v1.verifier_pb2_grpc import VerifierStub
from outrider.wire.frames import decode_frame
from outrider.wire.ids import pack_ids
from outrider.wire.page_news import NAME_BYTES, decode_news, split_names

from tests.broker import Broker
from tests.processes import ServiceProcess
from tests.toy_model import save_toy
from tests.waiting import eventually

PAGE, PAGES = 8, 24


class Lossy(PageReader):
    """A page reader that loses some news."""

    lose: frozenset[int] = frozenset()

    def hear(self, message: Message) -> None:
        if decode_news(message.data).number not in self.lose:
            super().hear(message)


class Site:
    """Verifiers ``a`` and ``b`` with few pages, and a page reader."""

    def __init__(self, registry: Registry, pages: PageMap, reader: Lossy) -> None:
        self.registry, self.pages, self.reader = registry, pages, reader

    def member(self, name: str) -> Member:
        return next(member for member in self.registry.members("verifier") if member.instance == name)

    async def ask(self, name: str, prompt: list[int], tenant: str = "t") -> int:
        """The number of the prompt's tokens that were cached."""
        stub = VerifierStub(channel(self.member(name).address))
        sampling = sampling_pb2.SamplingParams(temperature=0.0, seed=1, max_tokens=1)
        asked = pb.SubmitRequest(request_id=token_hex(8), tenant=tenant, prompt=pack_ids(prompt), sampling=sampling)
        await stub.Submit(asked)
        usage = None
        async for response in stub.Follow(pb.FollowRequest(request_id=asked.request_id)):
            usage = decode_frame(response.frame).usage
        assert usage is not None
        return usage.cached_tokens

    def names(self, prompt: list[int], tenant: str = "t") -> list[bytes]:
        vocabulary = self.member("a").status["vocabulary"]
        return [name[:NAME_BYTES] for name in chain_hashes(vocabulary.encode(), tenant, prompt, PAGE)]

    async def truth(self, name: str) -> frozenset[bytes]:
        told = await VerifierStub(channel(self.member(name).address)).Pages(pb.PagesRequest())
        return frozenset(split_names(told.pages))


def prompt(number: int, length: int = 40) -> list[int]:
    return [(number * 13 + index * (number + 3)) % 50 for index in range(length)]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, dict[str, ServiceProcess]]]:
    logs, broker = tmp_path_factory.mktemp("logs"), Broker()
    broker.start()
    settings = {"model": save_toy(logs / "toy", 50), "page_size": PAGE, "pages": PAGES, "drafters": "[]"}
    made = {
        name: ServiceProcess("verifier", logs / f"{name}.log", nats_url=broker.url, instance=name, **settings)
        for name in "ab"
    }
    for process in made.values():
        process.start()
    yield broker, made
    for process in made.values():
        process.stop()
    broker.kill()


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Site]:
    bus, tasks, pages = Bus(), Tasks(), PageMap(1000)
    await bus.connect(url, "test", wait_s=10)
    registry = Registry(bus, "test", "reader")
    await registry.start()
    await registry.wait_for("verifier", lambda members: len(members) == 2, 240)
    reader = Lossy(bus, registry, tasks, pages)
    tasks.spawn(reader.run(), "reader")
    try:
        yield Site(registry, pages, reader)
    finally:
        await tasks.cancel()
        registry.leave()
        await bus.close()
        await close_channels()


@pytest.fixture
async def site(processes: tuple[Broker, dict[str, ServiceProcess]]) -> AsyncIterator[Site]:
    async with reading(processes[0].url) as made:
        yield made


def gaps() -> float:
    return float(metrics.page_gaps.collect()[0].samples[0].value)


async def test_pages_are_known_as_they_come_and_go_whoever_had_them_computed(site: Site) -> None:
    await site.ask("a", prompt(1))
    await eventually(lambda: site.pages.leading("a", site.names(prompt(1))) == 5)
    assert site.pages.leading("a", site.names(prompt(1), "u")) == 0, "nobody else's prompt is the same"
    assert site.pages.leading("b", site.names(prompt(1))) == 0
    for number in range(2, 8):
        await site.ask("a", prompt(number))
    await eventually(lambda: site.pages.leading("a", site.names(prompt(7))) == 5)
    expected = await site.truth("a")
    await eventually(lambda: site.pages.of("a") == expected)
    assert site.pages.leading("a", site.names(prompt(1))) < 5, "it was evicted"
    assert gaps() == 0


async def test_a_router_sends_a_prompt_to_who_was_asked_by_somebody_else(site: Site) -> None:
    router = Prefix({})
    router.pages = site.pages
    await site.ask("b", prompt(20), "t")
    await eventually(lambda: site.pages.leading("b", site.names(prompt(20))) == 5)
    members = [site.member(name) for name in "ab"]
    there = [Replica(member.instance, 0, member.status) for member in members]
    assert router.choose(Ask("t", prompt(20)), there)[0].instance == "b"


@pytest.mark.parametrize("lost", ["one in the middle", "the last"])
async def test_pages_of_news_that_were_lost_are_asked_for(site: Site, lost: str) -> None:
    await site.ask("a", prompt(30))
    await eventually(lambda: site.pages.leading("a", site.names(prompt(30))) == 5)
    before, (_, number) = gaps(), site.reader.position("a")
    site.reader.lose = frozenset({number + 1})
    await site.ask("a", prompt(31 if lost == "the last" else 32))
    if lost != "the last":
        await _published(site, number + 1)
        await site.ask("a", prompt(33))
    expected = await site.truth("a")
    await eventually(lambda: site.pages.of("a") == expected)
    assert gaps() == before + 1


async def _published(site: Site, number: int) -> None:
    """Returns once ``a`` has published this number of news."""
    stub, (epoch, _) = VerifierStub(channel(site.member("a").address)), site.reader.position("a")
    async with asyncio.timeout(60):
        while (await stub.Pages(pb.PagesRequest(epoch=epoch))).number < number:
            await asyncio.sleep(0.02)


async def test_a_verifier_that_was_killed_and_came_back_has_only_what_it_computed_since(
    site: Site, processes: tuple[Broker, dict[str, ServiceProcess]]
) -> None:
    await site.ask("b", prompt(40))
    await eventually(lambda: site.pages.leading("b", site.names(prompt(40))) == 5)
    processes[1]["b"].kill()
    processes[1]["b"].start()
    await eventually(lambda: not site.pages.of("b"))
    await site.registry.wait_for("verifier", lambda members: len(members) == 2, 240)
    assert await site.ask("b", prompt(41)) == 0
    await eventually(lambda: site.pages.of("b") == frozenset(site.names(prompt(41))))


async def test_who_follows_the_news_is_not_told_all_pages_again(site: Site) -> None:
    await eventually(lambda: site.pages.of("a"))
    stub, (epoch, _) = VerifierStub(channel(site.member("a").address)), site.reader.position("a")
    told = {known: (await stub.Pages(pb.PagesRequest(epoch=known))).full for known in (epoch, "another")}
    assert told == {epoch: False, "another": True}
