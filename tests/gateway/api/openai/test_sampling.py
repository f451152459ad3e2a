"""Sampling parameters over HTTP and through the whole mesh: answers are the same with and without speculation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from outrider.engine.text import Tokenizer
from outrider.gateway.request.generation import choice_seed

from tests.gateway.stack import CONTEXT, MODEL, Stack, events

MESSAGES: Any = [{"role": "user", "content": "def parse("}]
EDITS: Any = {
    "repetition_penalty": 1.2,
    "frequency_penalty": 0.4,
    "presence_penalty": 0.3,
    "logit_bias": {"40": 3, "41": -100},
    "bad_words": ["a", [50, 51]],
    "min_tokens": 4,
    "repeat_last_n": 12,
    "allowed_token_ids": [*range(20, 300)],
    "top_p": 0.95,
}


@pytest.fixture
async def client(shared: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def http(shared: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as made:
        yield made


def _body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "def parse(", "max_tokens": 24, "seed": 3, "ignore_eos": True} | more


async def _ask(http: httpx.AsyncClient, **more: Any) -> Any:
    response = await http.post("/v1/completions", json=_body(**more))
    assert response.status_code == 200, response.text
    return response.json()


async def test_choices_are_those_of_their_seeds_and_speculation_changes_none(http: httpx.AsyncClient) -> None:
    asked: Any = {"n": 3, "logprobs": 3, "return_tokens": True, **EDITS}
    answer = await _ask(http, **asked, speculation="off")
    guessed = await _ask(http, **asked)
    assert guessed["choices"] == answer["choices"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["text"] for choice in answer["choices"]}) == 3
    assert (answer["usage"]["completion_tokens"], answer["outrider"]["seed"]) == (72, 3)
    for index, told in enumerate(answer["outrider"]["choices"]):
        assert told["seed"] == choice_seed(3, index)
        alone = await _ask(http, **asked | {"n": 1, "seed": told["seed"]})
        assert alone["choices"][0] == answer["choices"][index] | {"index": 0}
        assert alone["outrider"]["tokens"] == told["tokens"]


async def test_streamed_choices_are_those_of_the_whole_answer(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "prompt": "def parse(", "max_tokens": 24, "seed": 3, "n": 3, "logprobs": 2}
    asked |= {"echo": True, "extra_body": {"ignore_eos": True}}
    whole = await client.completions.create(**asked)
    stream = await client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.text for part in parts) == choice.text
        assert [part.finish_reason for part in parts if part.finish_reason] == ["length"]
        assert choice.logprobs is not None
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            joined = [entry for part in parts if part.logprobs for entry in getattr(part.logprobs, name)]
            assert joined == getattr(choice.logprobs, name)
    assert chunks[-1].usage == whole.usage


async def test_an_echo_tells_the_prompt_and_how_likely_it_was(http: httpx.AsyncClient, shared: Stack) -> None:
    prompt = Tokenizer.load(shared.directory).encode("def parse(")
    choice = (await _ask(http, echo=True, logprobs=2, return_tokens=True))["choices"][0]
    assert choice["text"].startswith("def parse(")
    told = choice["logprobs"]
    assert len(told["tokens"]) == len(prompt) + 24
    assert "".join(told["tokens"][: len(prompt)]) == "def parse("
    assert [value is None for value in told["token_logprobs"]] == [True] + [False] * (len(prompt) + 23)
    assert [choice["text"][at:][:1] for at in told["text_offset"][: len(prompt)]] == [t[0] for t in told["tokens"]][
        : len(prompt)
    ]
    assert all(2 <= len(top) <= 3 for top in told["top_logprobs"][1:])
    scored = (await _ask(http, echo=True, logprobs=2, max_tokens=0))["choices"][0]
    assert scored["text"] == "def parse("
    assert scored["logprobs"]["token_logprobs"] == told["token_logprobs"][: len(prompt)]
    silent = await _ask(http, echo=True, return_tokens=True)
    assert silent["choices"][0]["text"] == choice["text"]
    assert silent["outrider"]["tokens"][: len(prompt)] == prompt
    assert silent["usage"]["completion_tokens"] == 24


async def test_a_prompt_as_long_as_the_context_is_scored_where_no_answer_is_asked_for(http: httpx.AsyncClient) -> None:
    scoring = {"prompt": [5] * CONTEXT, "max_tokens": 0, "echo": True, "ignore_eos": False}
    for more in ({"logprobs": 1}, {"logprobs": 0, "n": 2}, {}):
        answer = await _ask(http, **scoring, **more)
        assert answer["usage"]["prompt_tokens"] == CONTEXT
        for choice in answer["choices"] if "logprobs" in more else ():
            scored = choice["logprobs"]["token_logprobs"]
            assert [value is None for value in scored] == [True] + [False] * (CONTEXT - 1)
    for more in ({"prompt": [5] * (CONTEXT + 1)}, {"max_tokens": 1}):
        response = await http.post("/v1/completions", json=_body(**scoring | more))
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_the_openai_client_reads_a_chats_log_probabilities(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "seed": 3, "logprobs": True}
    asked |= {"top_logprobs": 3, "n": 2}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True)
    chunks = [chunk async for chunk in stream]
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.delta.content or "" for part in parts) == choice.message.content
        assert choice.logprobs is not None
        content = choice.logprobs.content
        assert content is not None
        assert [entry for part in parts if part.logprobs for entry in part.logprobs.content or []] == content
        assert len(content) == 12
        data = b"".join(bytes(entry.bytes or []) for entry in content)
        assert data.decode("utf-8", "replace") == choice.message.content
        for entry in content:
            assert [top.logprob for top in entry.top_logprobs] == sorted(
                (top.logprob for top in entry.top_logprobs), reverse=True
            )
            assert len(entry.top_logprobs) == 3


async def test_bad_words_are_texts_with_and_without_a_space(http: httpx.AsyncClient) -> None:
    biased: Any = {"temperature": 0, "logit_bias": {}, "max_tokens": 30}
    free = (await _ask(http, **biased))["choices"][0]["text"]
    letter = next(letter for letter in free if letter.isascii() and letter.isalpha())
    kept = (await _ask(http, **biased, bad_words=[letter], logprobs=0))["choices"][0]
    assert letter not in kept["logprobs"]["tokens"]
    assert " " + letter not in kept["logprobs"]["tokens"]


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"logit_bias": {"999999": 1}}, "logit_bias", "outside the vocabulary"),
        ({"bad_words": [[999999]]}, "bad_words", "outside the vocabulary"),
        ({"min_tokens": 25}, "min_tokens", "at most the 24 tokens that the answer may have, not 25"),
        ({"max_tokens": 0}, "max_tokens", "at least 1 (0 with echo), not 0"),
        ({"best_of": 1, "n": 2}, "best_of", "at least n, 2, not 1"),
        ({"allowed_token_ids": [999999]}, "allowed_token_ids", "outside the vocabulary"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    http: httpx.AsyncClient, more: Any, param: str, message: str
) -> None:
    response = await http.post("/v1/completions", json=_body(**more))
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert message in error["message"]


async def test_parameters_that_leave_no_token_are_told_as_the_clients_fault(
    http: httpx.AsyncClient, shared: Stack
) -> None:
    every = [[token] for token in range(Tokenizer.load(shared.directory).vocabulary_size)]
    response = await http.post("/v1/completions", json=_body(bad_words=every))
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "leave no token" in response.json()["error"]["message"]


async def test_a_stream_of_choices_ends_with_one_done(http: httpx.AsyncClient) -> None:
    async with http.stream("POST", "/v1/completions", json=_body(n=3, stream=True)) as response:
        heard = [event async for event in events(response)]
    finishes = [event["choices"][0]["index"] for event in heard if event["choices"][0]["finish_reason"]]
    assert sorted(finishes) == [0, 1, 2]
