"""The guesses that were verified, over HTTP, where a request asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
from outrider.gateway.inference.requests import asked
from outrider.gateway.openai.bodies import read_completion
from outrider.gateway.openai.logprobs import token_name
from outrider.gateway.responses.body import read_response
from outrider.mesh.errors import InvalidRequest
from outrider.models.text import Tokenizer
from outrider.v1.inference_pb2 import GenerateRequest
from outrider.v1.sampling_pb2 import Speculation

from tests.gateway.stack import BEGINNING, MODEL, Stack, events

BODY = {"model": MODEL, "prompt": BEGINNING, "seed": 3, "max_tokens": 40, "ignore_eos": True, "return_drafts": True}
GREEDY = {"temperature": 0, "coalesce": False}


@pytest.fixture
async def http(guessing: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guessing.url, timeout=60) as client:
        yield client


async def streamed(http: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
        assert response.status_code == 200, await response.aread()
        return [event async for event in events(response)]


async def test_a_chunk_tells_the_tree_of_its_step(http: httpx.AsyncClient, directory: Path) -> None:
    table = Tokenizer.load(directory).alone
    chunks: list[dict[str, Any]] = []
    while not any(any(chunk["outrider"]["guessed_by"]) for chunk in chunks):  # not all drafters are asked at all times
        chunks = await streamed(http, BODY | GREEDY | {"return_tokens": True})
    accepted = 0
    for extra in (chunk["outrider"] for chunk in chunks):
        (draft,) = extra["drafts"]
        assert draft["first_index"] == extra["first_index"]
        path = draft["accepted"]
        assert [draft["tokens"][node] for node in path] == extra["tokens"][: len(path)]
        assert draft["texts"] == [token_name(table[token]) for token in draft["tokens"]]
        assert {draft["guessed_by"][node] for node in path} == set(extra["guessed_by"][: len(path)])
        accepted += len(path)
    assert accepted == sum(map(bool, chain.from_iterable(chunk["outrider"]["guessed_by"] for chunk in chunks))) > 0


async def test_a_whole_answer_tells_the_trees_of_all_its_steps_and_no_tokens_that_nobody_asked_for(
    http: httpx.AsyncClient,
) -> None:
    extra = (await http.post("/v1/completions", json=BODY | GREEDY)).json()["outrider"]
    assert len(extra["drafts"]) == extra["steps"]
    starts = [draft["first_index"] for draft in extra["drafts"]]
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert "tokens" not in extra


async def test_nothing_is_told_without_being_asked_for(http: httpx.AsyncClient) -> None:
    quiet = BODY | GREEDY | {"return_drafts": False, "return_tokens": True}
    assert not any("drafts" in chunk["outrider"] for chunk in await streamed(http, quiet))


async def test_a_stream_that_is_taken_up_again_tells_the_same_trees(http: httpx.AsyncClient) -> None:
    async with http.stream("POST", "/v1/completions", json=BODY | GREEDY | {"stream": True}) as response:
        first, stream = await response.aread(), response.headers["x-request-id"]
    again = await http.get(f"/v1/streams/{stream}")
    assert again.content == first
    assert b'"drafts"' in first


def test_other_front_doors_refuse_it_by_name() -> None:
    with pytest.raises(InvalidRequest, match="return_drafts is not supported") as caught:
        read_response(b'{"input": "x", "return_drafts": true}')
    assert caught.value.param == "return_drafts"
    request = GenerateRequest(text="x", speculation=Speculation(return_drafts=True))
    with pytest.raises(InvalidRequest, match="return_drafts is not supported over gRPC"):
        asked(request, 1 << 20)


def test_it_is_true_or_false() -> None:
    with pytest.raises(InvalidRequest, match="return_drafts must be true or false, not 1"):
        read_completion(b'{"prompt": "x", "return_drafts": 1}')
