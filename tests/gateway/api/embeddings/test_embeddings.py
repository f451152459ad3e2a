"""Embeddings, ranks and scores over HTTP, also by the unmodified package openai."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from outrider.engine import LLM
from outrider.wire.tenants import Limits

from tests.gateway.stack import CONTEXT, MODEL, RUNNING, Stack
from tests.gateway.tenants import TenantStore, wait_charged
from tests.gateway.tenants import client as tenant_client
from tests.latch import Latch

pytestmark = pytest.mark.timeout(300)
TEXTS = ["def f(", "import os", "class A:", "a", "b", "c", "def f(x", "return"]


@pytest.fixture
async def client(shared: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def http(shared: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=120, trust_env=False) as made:
        yield made


@pytest.fixture(scope="module")
def vectors(shared: Stack) -> list[list[float]]:
    """What the library says of `TEXTS`."""
    with LLM(shared.directory, drafters=()) as llm:
        return [list(map(float, vector)) for vector in llm.embed(TEXTS)]


async def test_embeddings_are_those_of_the_library(client: openai.AsyncOpenAI, vectors: list[list[float]]) -> None:
    """There are more texts than a verifier takes at once."""
    made = await client.embeddings.create(model=MODEL, input=TEXTS)
    assert [each.embedding for each in made.data] == vectors
    assert [each.index for each in made.data] == [*range(len(TEXTS))]
    assert made.usage.prompt_tokens == made.usage.total_tokens > len(TEXTS)
    (one,) = (await client.embeddings.create(model=MODEL, input=TEXTS[0], encoding_format="float")).data
    assert one.embedding == vectors[0]


async def test_token_ids_are_embedded(client: openai.AsyncOpenAI, http: httpx.AsyncClient) -> None:
    ids = [(await http.post("/v1/tokenize", json={"prompt": text})).json()["tokens"] for text in TEXTS[:2]]
    by_text = (await client.embeddings.create(model=MODEL, input=TEXTS[:2])).data
    assert (await client.embeddings.create(model=MODEL, input=ids)).data == by_text
    (one,) = (await client.embeddings.create(model=MODEL, input=ids[0])).data
    assert one == by_text[0]


async def test_dimensions_are_cut_off_and_the_rest_has_length_1(
    client: openai.AsyncOpenAI, vectors: list[list[float]]
) -> None:
    (one,) = (await client.embeddings.create(model=MODEL, input=TEXTS[0], dimensions=5)).data
    first = np.array(vectors[0][:5])
    assert np.allclose(one.embedding, first / np.linalg.norm(first), atol=1e-6)


async def test_base64_holds_floats(http: httpx.AsyncClient, vectors: list[list[float]]) -> None:
    body = {"input": TEXTS[0], "encoding_format": "base64"}
    data = (await http.post("/v1/embeddings", json=body)).json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(data), "<f4").tolist() == vectors[0]


async def test_the_nearest_document_comes_first(http: httpx.AsyncClient, vectors: list[list[float]]) -> None:
    body: dict[str, Any] = {"query": TEXTS[0], "documents": [TEXTS[1], {"text": TEXTS[6]}, TEXTS[0]], "top_n": 2}
    made = (await http.post("/v1/rerank", json=body)).json()
    expected = sorted(((float(np.dot(vectors[0], vectors[each])), place) for place, each in enumerate((1, 6, 0))))[::-1]
    assert [each["index"] for each in made["results"]] == [place for _, place in expected[:2]]
    assert np.allclose([each["relevance_score"] for each in made["results"]], [score for score, _ in expected[:2]])
    assert made["results"][0] == {"index": 2, "relevance_score": pytest.approx(1), "document": {"text": TEXTS[0]}}
    without = (await http.post("/rerank", json=body | {"return_documents": False, "top_n": 0})).json()
    assert [set(each) for each in without["results"]] == [{"index", "relevance_score"}] * 3


async def test_scores_are_of_one_to_many_or_of_pairs(http: httpx.AsyncClient, vectors: list[list[float]]) -> None:
    many = (await http.post("/v1/score", json={"text_1": TEXTS[0], "text_2": TEXTS[:2]})).json()
    pairs = (await http.post("/score", json={"text_1": TEXTS[:2], "text_2": TEXTS[1:3]})).json()
    assert np.allclose([each["score"] for each in many["data"]], [1, np.dot(vectors[0], vectors[1])])
    expected = [np.dot(vectors[0], vectors[1]), np.dot(vectors[1], vectors[2])]
    assert np.allclose([each["score"] for each in pairs["data"]], expected)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("embeddings", {}, "input is required"),
        ("embeddings", {"input": []}, "input"),
        ("embeddings", {"input": ""}, "input must hold at least one token"),
        ("embeddings", {"input": ["a", ""]}, "input[1] must hold at least one token"),
        ("embeddings", {"input": [[1], [1 << 30]]}, "input holds an id outside the vocabulary"),
        ("embeddings", {"input": [1] * (CONTEXT + 1)}, f"input: {CONTEXT + 1} tokens leave no room"),
        ("embeddings", {"input": ["a"] * 2049}, "input: 2049 prompts are more than 2048"),
        ("embeddings", {"input": "a", "dimensions": 33}, "dimensions must be at most 32"),
        ("embeddings", {"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ("embeddings", {"input": "a", "model": "other"}, "other"),
        ("rerank", {"query": "a", "documents": []}, "documents must be an array of 1 to 2048"),
        ("rerank", {"query": "a", "documents": ["b", ""]}, "documents[1] must hold at least one token"),
        ("rerank", {"query": "", "documents": ["b"]}, "query must hold at least one token"),
        ("score", {"text_1": ["a", "b"], "text_2": "c"}, "text_1 must be one text, or as many as text_2"),
    ],
)
async def test_a_wrong_body_is_refused(http: httpx.AsyncClient, path: str, body: dict[str, Any], message: str) -> None:
    answer = await http.post(f"/v1/{path}", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"].startswith(message) or message == "other"
    assert message in answer.json()["error"]["message"]


async def streams(http: httpx.AsyncClient) -> int:
    lines = (await http.get("/metrics")).text.splitlines()
    return next(int(float(line.split()[-1])) for line in lines if line.startswith("outrider_gateway_streams "))


async def test_a_client_that_leaves_leaves_nothing_behind(http: httpx.AsyncClient, shared_halted: Latch) -> None:
    body = {"prompt": "def f(", "max_tokens": 60, "ignore_eos": True}
    others = [asyncio.create_task(http.post("/v1/completions", json=body)) for _ in range(RUNNING)]
    async with asyncio.timeout(60):
        while await streams(http) < RUNNING:
            await asyncio.sleep(0.1)
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/embeddings", json={"input": "a"}, timeout=2)
        while await streams(http) > RUNNING:
            await asyncio.sleep(0.1)
    shared_halted.lift()
    assert [(await other).status_code for other in others] == [200] * RUNNING
    assert (await http.post("/v1/embeddings", json={"input": "a"})).status_code == 200


async def test_a_deadline_ends_embeddings(http: httpx.AsyncClient, shared_halted: Latch) -> None:
    body = {"prompt": "def f(", "max_tokens": 60, "ignore_eos": True}
    others = [asyncio.create_task(http.post("/v1/completions", json=body)) for _ in range(RUNNING)]
    async with asyncio.timeout(60):
        while await streams(http) < RUNNING:
            await asyncio.sleep(0.1)
    late = await http.post("/v1/embeddings", json={"input": "a"}, headers={"x-request-timeout-ms": "300"})
    assert late.status_code in (429, 504), late.text
    shared_halted.lift()
    await asyncio.gather(*others)


async def test_tokens_are_charged_and_few_streams_suffice(
    shared: Stack, urls: list[str], tenant_store: TenantStore
) -> None:
    _, text = await tenant_store.key(Limits(concurrent_streams=1, tokens_per_day=1000))
    async with tenant_client(urls[0], text) as asking:
        made = await asking.embeddings.create(model=MODEL, input=TEXTS[:3])
        assert len(made.data) == 3
        await wait_charged(shared, tenant_store.tenant, made.usage.total_tokens)
        with pytest.raises(openai.RateLimitError, match="tokens per day"):
            await asking.embeddings.create(model=MODEL, input=[3] * 1000)
    async with tenant_client(urls[0], "none") as asking:
        with pytest.raises(openai.AuthenticationError):
            await asking.embeddings.create(model=MODEL, input="a")
