"""Several prompts in one completion: each gets the answers that it would get alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from secrets import token_hex
from typing import Any

import httpx
import nats
import openai
import pytest
from outrider.wire.tenants import Limits

from tests.engine.text.makers import byte_level
from tests.gateway.raw_streams import RawStream
from tests.gateway.stack import CONTEXT, MODEL, Stack, events
from tests.gateway.streaming import Gateway
from tests.gateway.tenants import TenantStore, error_of, headers_of

TEXTS = ["def parse(", "for x in", "class A:\n    "]
IDS = [byte_level().encode(text).ids for text in TEXTS]
ASKED: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "seed": 11, "logprobs": 2, "return_tokens": True}
EACH: list[dict[str, Any]] = [
    {},
    {"n": 2},
    {"echo": True},
    {"echo": True, "max_tokens": 0},
    {"seed": -(2**63), "n": 2, "top_k": 5, "stop": ["e"]},
    {"temperature": 0, "seed": None},
]


@pytest.fixture
async def http(one: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=one.url, timeout=60) as made:
        yield made


async def _ask(http: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    answer = await http.post("/v1/completions", json=ASKED | more)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("prompts", [TEXTS, IDS], ids=["texts", "ids"])
@pytest.mark.parametrize("more", EACH, ids=str)
async def test_each_prompt_is_answered_as_it_is_alone(
    http: httpx.AsyncClient, prompts: list[Any], more: dict[str, Any]
) -> None:
    alone = [await _ask(http, prompt=prompt, **more) for prompt in prompts]
    together = await _ask(http, prompt=prompts, **more)
    expected = [choice for answer in alone for choice in answer["choices"]]
    assert [choice | {"index": 0} for choice in together["choices"]] == [each | {"index": 0} for each in expected]
    assert [choice["index"] for choice in together["choices"]] == list(range(len(expected)))
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert together["usage"][name] == sum(answer["usage"][name] for answer in alone)
    tokens = [extra["tokens"] for answer in alone for extra in answer["outrider"].get("choices", [answer["outrider"]])]
    assert [extra["tokens"] for extra in together["outrider"]["choices"]] == tokens
    if more.get("seed", 0) is not None:
        seeds = [extra["seed"] for answer in alone for extra in answer["outrider"].get("choices", [answer["outrider"]])]
        assert [extra["seed"] for extra in together["outrider"]["choices"]] == seeds


async def test_a_stream_tells_each_answer_by_its_index(http: httpx.AsyncClient, one: Gateway) -> None:
    whole = await _ask(http, prompt=TEXTS, n=2, echo=True)
    asked: Any = ASKED | {"prompt": TEXTS, "n": 2, "echo": True, "stream": True}
    asked["stream_options"] = {"include_usage": True}
    async with http.stream("POST", "/v1/completions", json=asked) as response:
        *chunks, last = [chunk async for chunk in events(response)]
    texts = [""] * 6
    for chunk in chunks:
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in whole["choices"]]
    counted = ("prompt_tokens", "completion_tokens")
    assert [last["usage"][name] for name in counted] == [whole["usage"][name] for name in counted]


@pytest.mark.parametrize("echo", [False, True])
async def test_a_stream_is_taken_up_at_another_gateway(one: Gateway, other: Gateway, echo: bool) -> None:
    body: Any = {"prompt": TEXTS, "n": 2, "echo": echo, "max_tokens": 24, "logprobs": 1, "return_tokens": True}
    stayed = await RawStream(one.url).begin(**body)
    left = await RawStream(one.url).begin(**body, enough=9, stay=True)
    back = await RawStream(other.url).resume(left.request, left.events[-1].id)
    heard = [event for event in [*left.events, *back.events] if event.data != b"[DONE]"]
    assert _texts(heard) == _texts(event for event in stayed.events if event.data != b"[DONE]")
    assert back.events[-1].data == b"[DONE]"
    everything = await RawStream(other.url).resume(left.request)
    assert _texts(event for event in everything.events if event.data != b"[DONE]") == _texts(heard)


def _texts(events: Any) -> dict[int, tuple[str, list[int]]]:
    told: dict[int, tuple[str, list[int]]] = {}
    for event in events:
        for choice in event.json["choices"]:
            text, tokens = told.get(choice["index"], ("", []))
            told[choice["index"]] = text + choice["text"], tokens + event.json["outrider"]["tokens"]
    return told


async def test_prompts_without_a_seed_are_drawn_apart(http: httpx.AsyncClient) -> None:
    made = await _ask(http, prompt=["def f("] * 3, n=2, seed=None, max_tokens=12)
    seeds = [extra["seed"] for extra in made["outrider"]["choices"]]
    assert len(set(seeds)) == 6
    for choice, seed in zip(made["choices"], seeds, strict=True):
        again = await _ask(http, prompt="def f(", seed=seed, max_tokens=12)
        assert again["choices"][0]["text"] == choice["text"]


async def test_answers_are_cut_to_what_the_context_has_left_of_each_prompt(http: httpx.AsyncClient) -> None:
    made = await _ask(http, prompt=[[5] * (CONTEXT - 3), [5]], max_tokens=9, ignore_eos=True, logprobs=None)
    assert [len(extra["tokens"]) for extra in made["outrider"]["choices"]] == [3, 9]


@pytest.mark.parametrize(
    ("prompt", "param", "code"),
    [
        (["a", ""], "prompt[1]", None),
        ([[1], []], "prompt[1]", None),
        (["a", "b", "é" * 2 * CONTEXT], "prompt[2]", "context_length_exceeded"),
        ([[1], [5] * CONTEXT], "prompt[1]", "context_length_exceeded"),
        (["a"] * 129, "prompt", None),
    ],
    ids=["empty text", "no ids", "long text", "long ids", "many"],
)
async def test_a_prompt_that_is_wrong_is_named_by_its_place(
    http: httpx.AsyncClient, prompt: Any, param: str, code: str | None
) -> None:
    refused = await http.post("/v1/completions", json=ASKED | {"prompt": prompt})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, param, code), error
    assert error["message"].startswith(param)


async def test_the_openai_client_may_send_several(one: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key="x", max_retries=0) as client:
        made = await client.completions.create(model=MODEL, prompt=TEXTS, max_tokens=3, seed=2)
        same = await client.completions.create(model=MODEL, prompt=IDS, max_tokens=3, seed=2)
    assert [choice.text for choice in made.choices] == [choice.text for choice in same.choices]
    assert len(made.choices) == 3


async def test_over_nats_each_answer_has_a_subject(one: Gateway, streaming: Stack, http: httpx.AsyncClient) -> None:
    whole = await _ask(http, prompt=TEXTS, logprobs=None)
    client = await nats.connect(streaming.broker.url)
    try:
        body = {"prompt": TEXTS, "max_tokens": 6, "seed": 11, "request_id": token_hex(8)}
        answer = await client.request("outrider.v1.generate", json.dumps(body).encode(), timeout=30)
        told = json.loads(answer.data)
        assert len(told["subjects"]) == 3
        resumed = await RawStream(one.url).resume(told["request_id"])
    finally:
        await client.close()
    texts: dict[int, str] = {}
    for event in resumed.events:
        for choice in event.json["choices"] if event.data != b"[DONE]" else ():
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert [texts[index] for index in range(3)] == [choice["text"] for choice in whole["choices"]]


async def test_limits_count_every_prompt_and_every_answer(urls: list[str], tenant_store: TenantStore) -> None:
    _, key = await tenant_store.key(Limits(tokens_per_minute=1000))
    told = await headers_of(urls[0], key, prompt=IDS, max_tokens=4, n=1)
    assert int(told["x-ratelimit-remaining-tokens"]) == 1000 - sum(map(len, IDS)) - 3 * 4
    _, narrow = await tenant_store.key(Limits(tokens_per_minute=1000), own=Limits(concurrent_streams=2))
    with pytest.raises(openai.BadRequestError) as caught:
        await headers_of(urls[0], narrow, prompt=IDS)
    assert "3 answers are more than the 2 concurrent streams" in error_of(caught)["message"]
