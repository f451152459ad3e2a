"""The engine with fetched pages: the tokens do not depend on which verifier computed the pages."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from outrider.engine.decode.engine import Engine
from outrider.engine.decode.page_cache import NoCache
from outrider.engine.requests.output import Finish, Output
from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.sampling import Sampling
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.kernels.pool import KvPool
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, State
from outrider.mesh.rpc import close_channels
from outrider.verifier.pages.cached_pages import (
    CachedPages,
    OfferedPages,
    PageWriter,
    Prompt,
    WantedPages,
    copy_pages,
    page_bytes,
    to_bytes,
)
from outrider.verifier.pages.page_server import DeliveringCache, PageBatch
from outrider.verifier.pages.peers import Peers
from outrider.verifier.pages.remote_prefill import gives
from outrider.verifier.pages.shards import SEGMENT, instances_of
from outrider.verifier.pages.transfer import TransferTime
from outrider.wire.pages import page_key
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.engines import MakeEngine
from tests.waiting import eventually

PROMPT = [index * 7 % 50 for index in range(45)]


class DictionaryLink:
    """A link to a dictionary: pages arrive when the test calls `arrive`."""

    def __init__(self) -> None:
        self.pages: dict[bytes, bytes] = {}
        self.wanted: list[WantedPages] = []
        self.left: list[int] = []
        self.engine_pages: CachedPages | None = None

    def attach(self, pool: KvPool, scheduler: Scheduler) -> CachedPages:
        self.engine_pages = CachedPages(pool, scheduler, self)
        return self.engine_pages

    def fetch(self, wanted: WantedPages) -> bool:
        self.wanted.append(wanted)
        return True

    def leave(self, number: int) -> None:
        self.left.append(number)

    def wants(self, tenant: str, hashes: Seq[bytes], first: int) -> list[int]:
        return [index for index in range(first, len(hashes)) if hashes[index] not in self.pages]

    def offer(self, offered: OfferedPages) -> None:
        for place, index in enumerate(offered.indices):
            self.pages[offered.hashes[index]] = to_bytes(offered.copies, place)

    def pages_of(self, wanted: WantedPages) -> list[bytes]:
        return [self.pages[each] for each in wanted.hashes[wanted.present :] if each in self.pages]


def arrive(link: DictionaryLink) -> None:
    """Delivers the pages that the last engine made with the link wants."""
    assert link.engine_pages is not None
    for wanted in link.wanted:
        link.engine_pages.arrive(wanted, link.pages_of(wanted))
        link.engine_pages.ended(wanted)
    link.wanted.clear()


def request(name: str, prompt: Seq[int] = PROMPT, tenant: str = "t", temperature: float = 1.0) -> Request:
    return Request(name, tenant, list(prompt), Sampling(temperature, seed=5), 30)


def finish(engine: Engine) -> dict[str, list[Output]]:
    frames: dict[str, list[Output]] = {}
    while engine.busy or engine.has_news:
        for asked, frame in engine.step().outputs:
            frames.setdefault(asked.id, []).append(frame)
    return frames


def said(frames: Seq[Output]) -> list[int]:
    return [token for frame in frames for token in frame.tokens]


def reused(frames: Seq[Output]) -> int:
    usage = frames[-1].usage
    assert usage is not None
    return usage.cached_tokens


@pytest.fixture
def link() -> DictionaryLink:
    return DictionaryLink()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_answer_is_the_same_on_fetched_pages(
    make_engine: MakeEngine, link: DictionaryLink, temperature: float
) -> None:
    plain = make_engine()
    plain.submit(request("a", temperature=temperature))
    expected = said(finish(plain)["a"])
    for cached in (0, 40):
        engine = make_engine(cache=link.attach)
        engine.submit(request("a", temperature=temperature))
        assert not engine.busy
        arrive(link)
        frames = finish(engine)["a"]
        assert said(frames) == expected
        assert reused(frames) == cached
    assert len(link.pages) == (45 + 30 - 2) // 8


def test_a_page_that_was_changed_would_be_told_by_the_answer(make_engine: MakeEngine, link: DictionaryLink) -> None:
    """The answers that other tests compare do depend on the pages."""
    for first in (True, False):
        engine = make_engine(cache=link.attach)
        engine.submit(request("a"))
        arrive(link)
        frames = finish(engine)["a"]
        if first:
            expected = said(frames)
            link.pages = {name: bytes(len(data)) for name, data in link.pages.items()}
    assert said(frames) != expected


def test_others_go_on_while_one_waits_for_pages_and_it_keeps_its_place(
    make_engine: MakeEngine, link: DictionaryLink
) -> None:
    engine = make_engine(running=1, cache=link.attach)
    engine.submit(request("waits"))
    engine.submit(request("short", prompt=[1, 2]))
    engine.submit(request("later", prompt=[2, 3]))
    assert not finish_one(engine, "waits")
    arrive(link)
    assert said(finish(engine)["waits"])


def finish_one(engine: Engine, name: str) -> bool:
    """Whether ``name`` was among what is said until nobody goes on."""
    frames = finish(engine)
    assert {"short", "later"} <= frames.keys()
    return name in frames


def test_a_request_may_be_cancelled_while_it_waits_for_pages(make_engine: MakeEngine, link: DictionaryLink) -> None:
    engine = make_engine(waiting=1, cache=link.attach)
    engine.submit(request("a"))
    assert engine.cancel("a")
    assert finish(engine)["a"][-1].finish is Finish.CANCELLED
    assert link.left == [1]
    arrive(link)
    assert not engine.busy
    assert engine.load == 0
    assert engine.scheduler.pages.available == engine.scheduler.pages.total
    engine.submit(request("b"))


def test_pages_for_which_there_is_no_room_are_computed(make_engine: MakeEngine, link: DictionaryLink) -> None:
    first = make_engine(cache=link.attach)
    first.submit(request("a"))
    arrive(link)
    expected = said(finish(first)["a"])
    second = make_engine(pages=12, cache=link.attach)
    second.submit(request("other", prompt=[3] * 60))
    arrive(link)
    second.step()
    second.submit(request("a"))
    arrive(link)
    assert said(finish(second)["a"]) == expected


def test_no_more_is_fetched_at_a_time_than_there_is_room_for(make_engine: MakeEngine, link: DictionaryLink) -> None:
    engine = make_engine(pages=12, cache=link.attach)
    for number in range(4):
        engine.submit(request(f"r{number}", prompt=[number] * 45))
    assert [len(wanted.hashes) for wanted in link.wanted] == [5, 5, 2]
    engine.cancel("r0")
    engine.submit(request("again"))
    assert len(link.wanted[-1].hashes) == 5
    arrive(link)
    assert len(finish(engine)) == 5


def test_nothing_is_asked_where_nothing_could_be_reused(make_engine: MakeEngine, link: DictionaryLink) -> None:
    engine = make_engine(cache=link.attach)
    engine.submit(request("short", prompt=[1] * 8))
    assert not link.wanted
    assert engine.busy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_a_page_comes_back_as_it_was_in_every_dtype(dtype: torch.dtype) -> None:
    pool = KvPool(3, 4, 8, 2, 16, dtype)
    for part in (pool.data, pool.scales):
        if part is not None:
            part.copy_(torch.randint(-100, 100, part.shape).to(part.dtype))
    stored = to_bytes(copy_pages(pool, [0, 1]), 1)
    assert len(stored) == page_bytes(pool)
    PageWriter(pool).write(3, stored)
    copies = copy_pages(pool, [3, 2])
    assert to_bytes(copies, 0) == stored
    assert to_bytes(copies, 1) != stored
    pool.wipe([3])
    copies = copy_pages(pool, [3, 1])
    assert to_bytes(copies, 0) == bytes(len(stored))
    assert to_bytes(copies, 1) == stored


class Pinned(TorchFunctionMode):
    """Notes tensors of pinned memory, and makes ones of plain memory, which needs no GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.pop("pin_memory", False):
            self.sizes.append(args[0])
        return func(*args, **kwargs)


class Copies(TorchDispatchMode):
    """Notes copies from the CPU to a device: whether the caller waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default and args[1].device.type == "cpu":
            self.waited.append(len(args) < 3 or not args[2])
        return func(*args, **(kwargs or {}))


class Event:
    """Stands in for an event of a GPU, and notes when the CPU waits for it."""

    waits: ClassVar[list[int]] = []
    made: ClassVar[int] = 0

    def __init__(self, device: torch.device) -> None:
        assert device.type == "meta"
        self.number, Event.made = Event.made, Event.made + 1

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        Event.waits.append(self.number)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_pages_reach_a_gpu_by_pinned_memory_and_without_waiting(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "Event", Event)
    Event.waits, Event.made = [], 0
    pool = KvPool(3, 32, 8, 2, 16, dtype, "meta")
    with Pinned() as pinned, Copies() as copies:
        writer, size = PageWriter(pool), page_bytes(pool)
        for page in range(11):
            writer.write(page, bytes(size))
    assert copies.waited == [False] * 11, "one copy a page, for which nobody waits"
    assert pinned.sizes == [size] * 8
    assert Event.waits == [0, 1, 2], "memory is used again once its page has left it"


class NoIndexOfEightBitFloats(TorchDispatchMode):
    """Refuses what some builds of torch lack on CUDA devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.index_select.default and args[0].dtype == torch.float8_e4m3fn:
            raise NotImplementedError("index_select of float8_e4m3fn")
        return func(*args, **(kwargs or {}))


def test_pages_of_eight_bit_floats_are_copied_without_an_index_of_floats() -> None:
    pool = KvPool(1, 2, 8, 1, 16, torch.float8_e4m3fn)
    with NoIndexOfEightBitFloats():
        assert len(to_bytes(copy_pages(pool, [1]), 0)) == page_bytes(pool)


def test_a_third_instance_takes_about_a_third_of_the_pages_and_moves_no_others() -> None:
    chains = [[page_key(b"f", "t", bytes([chain, page])) for page in range(4 * SEGMENT)] for chain in range(100)]
    before = [instances_of(chain, ["one", "two"]) for chain in chains]
    after = [instances_of(chain, ["three", "two", "one"]) for chain in chains]
    pairs = [pair for left, right in zip(before, after, strict=True) for pair in zip(left, right, strict=True)]
    moved = [pair for pair in pairs if pair[0] != pair[1]]
    assert 0.2 < len(moved) / len(pairs) <= 0.4
    assert {right for _, right in moved} == {"three"}
    assert 0.4 < sum(left == "one" for left, _ in pairs) / len(pairs) < 0.6


def test_transfers_are_predicted_as_they_were_measured_and_forgotten_in_time() -> None:
    now = [0.0]
    transfer = TransferTime(lambda: now[0])
    assert transfer.seconds(1000) == 0
    transfer.measured(1000, asking=0.5, fetching=1.0)
    assert transfer.seconds(2000) == pytest.approx(2.5)
    now[0] = 29.0
    transfer.measured(1000, asking=0.5, fetching=0.1)
    assert 0.5 < transfer.seconds(2000) < 2.5
    now[0] = 60.0
    assert transfer.seconds(2000) == 0


@pytest.mark.parametrize("kv_dtype", ["float32", "int8"])
def test_pages_are_handed_over_as_they_are_computed_those_that_were_there_as_well(
    make_engine: MakeEngine, link: DictionaryLink, kv_dtype: str
) -> None:
    cache = None

    def attach(pool: KvPool, scheduler: Scheduler) -> DeliveringCache:
        nonlocal cache
        cache = DeliveringCache(NoCache(), pool)
        return cache

    engine = make_engine(prefill_rows=16, cache=attach, kv_dtype=kv_dtype)
    assert cache is not None
    engine.submit(request("before", prompt=PROMPT[:20]))
    finish(engine)
    handed: list[PageBatch | None] = []
    engine.submit(replace(request("a"), max_tokens=1, prefill_only=True))
    cache.expect("a", 1, handed.append)
    engine.step()
    assert [each and len(each.hashes) for each in handed] == [3]
    assert finish(engine)
    assert [each and len(each.hashes) for each in handed] == [3, 1, None]
    again: list[PageBatch | None] = []
    engine.submit(replace(request("b", prompt=PROMPT[:41]), max_tokens=1, prefill_only=True))
    cache.expect("b", 1, again.append)
    finish(engine)
    assert [each and len(each.hashes) for each in again] == [4, None]
    hashes = [digest for each in handed if each for digest in each.hashes]
    pages = [to_bytes(each.copies, place) for each in handed if each for place in range(len(each.hashes))]
    other = make_engine(cache=link.attach, kv_dtype=kv_dtype)
    other.submit(request("a"))
    assert link.wanted[0].hashes[1:] == hashes
    assert link.wanted[0].prompt == Prompt(PROMPT[:41], 0, 1.0, 0.0)
    arrive(link)
    finish(other)
    assert [link.pages[digest] for digest in hashes] == pages


def test_a_request_whose_pages_are_handed_over_asks_nobody_else_to_compute_them(
    make_engine: MakeEngine, link: DictionaryLink
) -> None:
    engine = make_engine(cache=link.attach)
    engine.submit(replace(request("a"), prefill_only=True))
    assert link.wanted[0].prompt is None


def test_computing_here_costs_more_the_more_sequences_it_holds_up(make_engine: MakeEngine) -> None:
    engine = make_engine(prefill_rows=64)
    sequence = Sequence.start(request("new"), 99, None)

    def price() -> float:
        return engine.estimate.added_delay(engine.scheduler, sequence, 40)

    idle = price()
    assert idle == pytest.approx(40 * engine.estimate.row_s)
    engine.submit(request("queued"))
    assert price() == pytest.approx(85 * engine.estimate.row_s)
    engine.step()
    assert price() == pytest.approx(80 * engine.estimate.row_s)


@pytest.mark.parametrize(
    ("role", "taker", "whether"),
    [
        ("prefill", "decode", True),
        ("prefill", "both", True),
        ("both", "decode", True),
        ("both", "both", False),
        ("decode", "both", False),
        ("decode", "prefill", False),
        ("prefill", "prefill", False),
        ("None", "decode", False),
    ],
)
def test_a_verifier_gives_to_those_that_are_less_for_prompts(role: str, taker: str, whether: bool) -> None:
    assert gives(role, taker) is whether


async def test_pages_are_shared_out_by_the_names_that_directories_keep_each_to_one_that_claims_it(bus: Bus) -> None:
    reader = Registry(bus, "verifier", "sharing")
    await reader.start()
    claims = {"a": {"shard": "old"}, "b": {"shard": "old"}, "c": {}}
    announced = [Registry(bus, "kvcache", name, lambda claim=claim: claim) for name, claim in claims.items()]
    for each in announced:
        each.address = "127.0.0.1:1"
        await each.start()
        each.set_state(State.READY)
    peers = Peers(reader, shared=True, sockets=True, changed=lambda: None)
    peers.start()
    await eventually(lambda: {"old", "b", "c"} <= set(peers.instances))
    assert "a" not in peers.instances
    peer = peers.available("old")
    assert peer is not None
    assert peer.member.instance == "a"
    announced[0].leave()
    await eventually(lambda: (peer := peers.available("old")) is not None and peer.member.instance == "b")
    for each in (reader, *announced):
        each.leave()
    await close_channels()
