"""Identical requests share one generation, and each gets the answer that it would get alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from outrider.gateway.admission.caller import Caller
from outrider.gateway.request.models import ServedModel
from outrider.gateway.routing.job import Job
from outrider.gateway.stream.answer_cache import AnswerCache, repeatable
from outrider.gateway.stream.pool import answer_key
from outrider.mesh.addresses import hold_port
from outrider.mesh.registry import Member, Registry, State
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.frames import Finish, Frame, Usage
from outrider.wire.tenants import Limits

from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import MODEL, Stack, Streamed
from tests.gateway.streaming import Gateway
from tests.gateway.tenants import TenantStore, shared_answers
from tests.latch import FEW, Latch
from tests.waiting import eventually

LONG = 300


def stream(shared: Stack, **more: Any) -> Streamed:
    return Streamed(shared.url, **{"prompt": "def same(", "seed": 11, "max_tokens": LONG} | more)


def load(registry: Registry) -> int:
    return sum(member.status["load"] for member in registry.members("verifier"))


@asynccontextmanager
async def under_way(latch: Latch, registry: Registry, *streams: Streamed) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The streams, each begun when the one before has tokens; they are halted until the latch is lifted.

    Those that still run are left in the end.
    """
    await eventually(lambda: load(registry) == 0)
    with latch.at(FEW):
        tasks = []
        for each in streams:
            tasks.append(asyncio.create_task(each.run()))
            await eventually(lambda each=each: len(each.tokens) == FEW)
        yield tasks
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_second_reads_the_first_ones_answer_from_its_beginning(shared: Stack, registry: Registry) -> None:
    alone = stream(shared, coalesce=False)
    await alone.run()
    first, second = stream(shared), stream(shared)
    before = await shared_answers(shared.url)
    async with under_way(shared.latch, registry, first, second) as tasks:
        shared.latch.lift()
        await asyncio.gather(*tasks)
    assert await shared_answers(shared.url) == before + 1
    assert first.tokens == second.tokens == alone.tokens
    assert first.usage == second.usage
    assert first.id != second.id


async def test_a_generation_ends_with_its_last_reader_and_not_before(shared: Stack, registry: Registry) -> None:
    first, second, third = (stream(shared) for _ in range(3))
    async with under_way(shared.latch, registry, first, second, third) as tasks:
        await eventually(lambda: load(registry) == 1)
        for task, reader, more in ((tasks[0], second, 2 * FEW), (tasks[1], third, 3 * FEW)):
            task.cancel()
            await asyncio.wait({task})
            shared.latch.set(more)
            await eventually(lambda reader=reader, more=more: len(reader.tokens) == more)
        assert not third.finish
    await eventually(lambda: load(registry) == 0)


@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ({"coalesce": False}, {}),
        ({}, {"x-outrider-coalesce": "false"}),
        ({"seed": None}, {}),
        ({"seed": 12}, {}),
        ({"timeout_ms": 60_000}, {}),
        ({"priority": 1}, {}),
    ],
)
async def test_what_is_not_the_very_same_or_does_not_want_to_is_generated_by_itself(
    shared: Stack, registry: Registry, more: dict[str, Any], headers: dict[str, str]
) -> None:
    first, second = stream(shared), stream(shared, **more)
    second.headers = headers
    async with under_way(shared.latch, registry, first, second):
        await eventually(lambda: load(registry) == 2)


async def test_who_ends_his_stream_ends_nobody_elses(shared: Stack, registry: Registry) -> None:
    await eventually(lambda: load(registry) == 0)
    alone = stream(shared, coalesce=False)
    await alone.run()
    streams = [stream(shared) for _ in range(3)]
    async with under_way(shared.latch, registry, *streams) as tasks, httpx.AsyncClient(timeout=60) as http:
        for place in (1, 0):
            assert (await http.delete(f"{shared.url}/v1/streams/{streams[place].id}")).status_code == 204
            with pytest.raises(AssertionError, match="the stream was cancelled"):
                await tasks[place]
        shared.latch.lift()
        await tasks[2]
        assert streams[2].tokens == alone.tokens


async def test_each_reader_can_come_back_to_his_own_stream(shared: Stack) -> None:
    both = [RawStream(shared.url), RawStream(shared.url)]
    await asyncio.gather(*(raw.begin(max_tokens=200, seed=21) for raw in both))
    assert both[0].request != both[1].request
    for raw in both:
        again = await RawStream(shared.url).resume(raw.request, raw.events[40].id)
        assert text(again) == text(raw, 41)


async def test_a_reader_goes_on_while_the_first_ones_stream_is_taken_elsewhere_and_given_up_there(
    streaming: Stack, one: Gateway, other: Gateway, streaming_registry: Registry
) -> None:
    asked = {"prompt": "def same(", "seed": 41, "max_tokens": LONG}
    alone, first, second = (Streamed(one.url, coalesce=coalesce, **asked) for coalesce in (False, True, True))
    await alone.run()
    async with under_way(streaming.latch, streaming_registry, first, second) as tasks:
        await eventually(lambda: load(streaming_registry) == 1)
        tasks[0].cancel()
        await asyncio.wait({tasks[0]})
        taken = await RawStream(other.url).resume(first.id, enough=10)
        assert text(taken) == alone.text[: len(text(taken))]
        streaming.latch.lift()
        await tasks[1]
    assert second.tokens == alone.tokens


async def test_choices_logprobs_and_grammars_are_shared_like_all_else(shared: Stack) -> None:
    more = {"n": 2, "logprobs": 2, "structured_outputs": {"regex": "[a-z ]{60}"}, "ignore_eos": False}
    body = {"model": MODEL, "prompt": "def same(", "seed": 5, "max_tokens": 80} | more
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as http:
        alone = (await http.post("/v1/completions", json=body | {"coalesce": False})).json()
        answers = await asyncio.gather(*(http.post("/v1/completions", json=body) for _ in range(4)))
    assert [answer.json()["choices"] for answer in answers] == [alone["choices"]] * 4


async def test_each_is_charged_what_it_read_and_tenants_share_nothing(
    shared: Stack, registry: Registry, urls: list[str], tenant_store: TenantStore
) -> None:
    other = TenantStore(tenant_store.bucket)
    keys = [(await each.key(Limits(tokens_per_day=100_000)))[1] for each in (tenant_store, tenant_store, other)]
    streams = [Streamed(urls[0], prompt="def same(", seed=31, max_tokens=LONG) for _ in keys]
    for each, key in zip(streams, keys, strict=True):
        each.headers = {"authorization": f"Bearer {key}"}
    async with under_way(shared.latch, registry, *streams) as tasks:
        await eventually(lambda: load(registry) == 2)
        shared.latch.lift()
        await asyncio.gather(*tasks)
    assert [await left(urls[0], keys[place]) for place in (0, 2)] == [
        100_000 - readers * streams[0].usage["total_tokens"] for readers in (2, 1)
    ]


@pytest.fixture(scope="module")
def caching(shared: Stack) -> Iterator[str]:
    """A gateway with a cache of answers."""
    port = hold_port()
    gateway = shared.add("gateway", port=port, cache_bytes=1 << 20)
    gateway.wait_ready()
    yield f"http://127.0.0.1:{port}"
    gateway.stop()


async def test_a_kept_answer_is_told_again_and_says_so(caching: str, shared: Stack) -> None:
    body = {"model": MODEL, "prompt": "def kept(", "temperature": 0, "max_tokens": 20, "return_tokens": True}
    async with httpx.AsyncClient(base_url=caching, timeout=60) as http:
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)
        first, again, other = [
            (await http.post("/v1/completions", json=body | more)).json() for more in ({}, {"seed": 9}, {"top_k": 3})
        ]
    assert again["choices"] == first["choices"]
    assert again["outrider"]["tokens"] == first["outrider"]["tokens"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"]
    assert again["outrider"]["steps"] == 0 < other["outrider"]["steps"]
    asked = {name: body[name] for name in ("prompt", "temperature", "max_tokens")}
    streamed = Streamed(caching, ignore_eos=False, **asked)
    await streamed.run()
    assert streamed.tokens == first["outrider"]["tokens"]
    assert streamed.last["steps"] == 0


def frames(tokens: int, finish: Finish | None = Finish.STOP) -> list[Frame]:
    return [Frame("r", 0, [1] * tokens, ["x"] * tokens, [""] * tokens, finish, Usage(3, tokens))]


def test_the_cache_holds_no_more_bytes_than_it_may_and_nothing_for_too_long() -> None:
    now = [0.0]
    cache = AnswerCache(2000, 10.0, lambda: now[0])
    cache.put(b"a", frames(100))
    cache.put(b"b", frames(100))
    assert cache.get(b"a")
    cache.put(b"c", frames(100))
    assert [bool(cache.get(name)) for name in (b"a", b"b", b"c")] == [True, False, True]
    cache.put(b"d", frames(2000))
    assert [bool(cache.get(name)) for name in (b"a", b"c", b"d")] == [True, True, False]
    assert 0 < cache.size <= 2000
    now[0] = 10.0
    assert [bool(cache.get(name)) for name in (b"a", b"c")] == [False, False]
    assert cache.size == 0


@pytest.mark.parametrize("finish", [Finish.CANCELLED, Finish.ERROR, Finish.REFUSED, Finish.TIMEOUT, None])
def test_only_whole_answers_are_kept(finish: Finish | None) -> None:
    cache = AnswerCache(10_000, 10.0)
    cache.put(b"a", frames(3, finish))
    assert cache.get(b"a") is None


def test_only_strict_answers_are_kept_unasked() -> None:
    def member(**status: Any) -> Member:
        return Member("verifier", "v", "", State.READY, status)

    assert repeatable(member(determinism="strict", lossy=False))
    assert not repeatable(member(determinism="fast", lossy=False))
    assert not repeatable(member(determinism="strict", lossy=True))
    assert not repeatable(member())
    assert not repeatable(None)


def job(tenant: str = "t", prompt: tuple[int, ...] = (1, 2), model: str = "m", off: bool = False, **more: Any) -> Job:
    params = SamplingParams(**{"temperature": 1.0, "seed": 3, "max_tokens": 4} | more)
    served, speculation = ServedModel(model, "v", 64), Speculation(off=off)
    return Job(f"{tenant}-{more}", served, list(prompt), params, speculation, Caller(tenant=tenant), coalesce=True)


def test_everything_that_may_change_an_answer_tells_requests_apart() -> None:
    others = [
        job(tenant="u"),
        job(prompt=(1, 2, 0)),
        job(model="n"),
        job(off=True),
        job(seed=4),
        job(temperature=0.5),
        job(max_tokens=5),
        job(stop=["x"]),
        job(logit_bias={1: 2.0}),
        job(logprobs=0),
        job(temperature=0.0, top_k=1),
    ]
    others.append(msgspec.structs.replace(job(), speculation=Speculation(return_drafts=True)))
    others.append(msgspec.structs.replace(job(), filters=("guard",)))
    assert len({answer_key(each) for each in [job(), *others]}) == 1 + len(others)
    bias = {1: 2.0, 2: 3.0, 9: 4.0}
    assert answer_key(job(logit_bias=bias)) == answer_key(job(logit_bias=dict(reversed(bias.items()))))
    assert answer_key(job(temperature=0.0, seed=1)) == answer_key(job(temperature=0.0, seed=2))
    assert answer_key(msgspec.structs.replace(job(), prediction=[1, 2])) == answer_key(job())
    assert answer_key(job(temperature=None, seed=1)) != answer_key(job(temperature=None, seed=2))


def text(raw: RawStream, start: int = 0) -> str:
    chunks = [event.json for event in raw.events[start:] if event.data.startswith(b"{")]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


async def left(url: str, key: str) -> int:
    """The tokens that a tenant had left before a request of one token."""
    asked = {"model": MODEL, "prompt": [5], "max_tokens": 1}
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as http:
        answer = await http.post(f"{url}/v1/completions", json=asked)
    return int(answer.headers["x-ratelimit-remaining-tokens"]) + 2


def test_kept_answers_of_one_tenant_are_forgotten() -> None:
    now = [0.0]
    cache = AnswerCache(10_000, 10.0, lambda: now[0])
    cache.put(b"a", frames(100), "gone")
    cache.put(b"b", frames(100), "stays")
    assert cache.forget("gone") == 1
    assert cache.get(b"a") is None
    assert cache.get(b"b") is not None
    now[0] = 10.0
    cache.expire()
    assert cache.size == 0
