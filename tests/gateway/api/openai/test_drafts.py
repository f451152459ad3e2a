"""The verified guesses in answers over HTTP, for requests that ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from httpx_sse import EventSource
from outrider.engine.text import Tokenizer
from outrider.gateway.api.openai.bodies import read_completion
from outrider.gateway.api.schema.logprobs import token_name
from outrider.mesh.errors import InvalidRequest
from outrider.v1.inference_pb2 import CompleteRequest, Draft, GenerateRequest
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import SamplingParams, Speculation

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
    table = Tokenizer.load(directory).single_token_bytes
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


async def test_over_grpc_trees_are_told_as_over_http(http: httpx.AsyncClient, guessing: Stack) -> None:
    told = (await http.post("/v1/completions", json=BODY | GREEDY | {"speculation": {"drafters": ["ngram"]}})).json()
    sampling = SamplingParams(seed=3, max_tokens=40, temperature=0.0, ignore_eos=True)
    wanted = Speculation(drafters=["ngram"], return_drafts=True)
    request = GenerateRequest(model=MODEL, text=BEGINNING, sampling=sampling, speculation=wanted, coalesce=False)
    async with grpc.aio.insecure_channel(guessing.grpc) as channel:
        stub: Any = InferenceStub(channel)
        guessed = False
        while not guessed:  # what a step buys depends on what steps take
            whole = (await stub.Complete(CompleteRequest(request=request))).choices[0]
            parts = [part async for part in stub.Generate(request)]
            drafted = whole.drafts, [draft for part in parts for draft in part.drafts]
            guessed = all(any(draft.data for draft in drafts) for drafts in drafted)
        request.speculation.return_drafts = False
        quiet = (await stub.Complete(CompleteRequest(request=request))).choices[0]
    for drafts, usage in zip(drafted, (whole.usage, parts[-1].usage), strict=True):
        starts = [draft.first_index for draft in drafts]
        assert starts == sorted(set(starts))
        assert starts[0] == 0
        assert sum(len(draft.accepted) for draft in drafts) == usage.accepted_tokens
        assert tree(drafts[0]) == told["outrider"]["drafts"][0]
    assert not quiet.drafts


def tree(draft: Draft) -> dict[str, Any]:
    texts = [token_name(data) for data in draft.data]
    told = {name: list(getattr(draft, name)) for name in ("tokens", "parents", "guessed_by", "accepted")}
    return told | {"first_index": draft.first_index, "texts": texts}


async def test_a_response_tells_them_with_each_delta_and_in_the_end(http: httpx.AsyncClient) -> None:
    body = {"input": BEGINNING, "temperature": 0, "max_output_tokens": 30, "ignore_eos": True, "coalesce": False}
    asked = body | {"return_drafts": True, "stream": True}
    async with http.stream("POST", "/v1/responses", json=asked) as response:
        events = [event.json() async for event in EventSource(response).aiter_sse()]
    deltas = [event["outrider"] for event in events if event["type"] == "response.output_text.delta"]
    last = events[-1]["response"]["outrider"]
    assert [draft for delta in deltas for draft in delta["drafts"]] == last["drafts"]
    assert len(last["drafts"]) == last["steps"]
    assert not any("tokens" in each for each in (*deltas, last))
    assert "drafts" not in (await http.post("/v1/responses", json=body)).json()["outrider"]


def test_it_is_true_or_false() -> None:
    with pytest.raises(InvalidRequest, match="return_drafts"):
        read_completion(b'{"prompt": "x", "return_drafts": 1}')
