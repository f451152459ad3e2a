"""llama-server's API against a gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.gateway.stack import CONTEXT, MODEL, Stack

pytestmark = pytest.mark.timeout(300)
BODY: Any = {"prompt": "def f(", "n_predict": 20, "seed": 7, "temperature": 0.8, "cache_prompt": True}


@pytest.fixture
async def http(shared: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=120, trust_env=False) as made:
        yield made


async def posted(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_completion_is_openai_s_whole_and_in_events(http: httpx.AsyncClient) -> None:
    whole = await posted(http, "/completion", BODY)
    asked = {"prompt": "def f(", "max_tokens": 20, "seed": 7, "temperature": 0.8}
    (choice,) = (await posted(http, "/v1/completions", asked))["choices"]
    assert (whole["content"], whole["stop"], whole["model"]) == (choice["text"], True, MODEL)
    assert (whole["stop_type"], whole["tokens_predicted"]) == ("limit", 20)
    async with http.stream("POST", "/completion", json=BODY | {"stream": True}) as response:
        told = [json.loads(line.removeprefix("data: ")) async for line in response.aiter_lines() if line]
    assert "".join(each["content"] for each in told) == whole["content"] != ""
    assert [each["stop"] for each in told] == [False] * (len(told) - 1) + [True]
    assert sum(len(each["tokens"]) for each in told) == 20


async def test_a_stop_is_named_and_a_grammar_holds(http: httpx.AsyncClient) -> None:
    whole = (await posted(http, "/completion", BODY))["content"]
    cut = await posted(http, "/completion", BODY | {"stop": [whole[5]]})
    assert (cut["stop_type"], cut["stopping_word"], cut["content"]) == (
        "word",
        whole[5],
        whole[: whole.index(whole[5])],
    )
    bound = await posted(http, "/completion", {"prompt": "a", "n_predict": -1, "grammar": 'root ::= "yes" | "no"'})
    assert bound["content"] in ("yes", "no")
    assert bound["stop_type"] == "eos"


async def test_tokens_texts_and_templates_go_both_ways(http: httpx.AsyncClient) -> None:
    ids = (await posted(http, "/tokenize", {"content": "def f("}))["tokens"]
    assert (await posted(http, "/detokenize", {"tokens": ids}))["content"] == "def f("
    said = {"messages": [{"role": "user", "content": "hi"}]}
    prompt = (await posted(http, "/apply-template", said))["prompt"]
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    props = (await http.get("/props")).json()
    assert (props["default_generation_settings"]["n_ctx"], props["model_alias"]) == (CONTEXT, MODEL)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "prompt is required"),
        ({"prompt": ["a", "b"]}, "prompt must be a string or an array of token ids, not several"),
        ({"prompt": "a", "n_predict": -3}, "n_predict must be an integer of at least"),
        ({"prompt": "a", "n_probs": 2}, "n_probs is not supported"),
        ({"prompt": "a", "temperature": -1}, "temperature must be a number from 0 to 100"),
        ({"prompt": "a", "grammar": 'root ::= "a"', "json_schema": {}}, "json_schema and grammar both say"),
    ],
)
async def test_a_wrong_body_is_refused(http: httpx.AsyncClient, body: dict[str, Any], message: str) -> None:
    answer = await http.post("/completion", json=body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]


async def test_a_path_without_v1_is_told_the_right_one(http: httpx.AsyncClient) -> None:
    answer = await http.post("/chat/completions", json={})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        404,
        "no such path: did you mean /v1/chat/completions?",
    )
    assert "did you mean /v1/models?" in (await http.get("/models")).text
    assert "/openapi.json lists what there is" in (await http.get("/nothing")).text


async def test_the_client_s_id_of_a_request_is_in_the_answer(http: httpx.AsyncClient, shared: Stack) -> None:
    body = {"prompt": "a", "max_tokens": 1}
    named = await http.post("/v1/completions", json=body, headers={"x-request-id": "trace.1/a"})
    again = await http.post("/v1/completions", json=body, headers={"x-request-id": "trace.1/a"})
    assert named.headers["x-request-id"] == again.headers["x-request-id"] == "trace.1/a"
    assert named.json()["id"] == f"cmpl-{named.headers['x-outrider-request-id']}" != again.json()["id"]
    for wrong in ("a b", "", "x" * 129):
        other = await http.post("/v1/completions", json=body, headers={"x-request-id": wrong})
        assert other.json()["id"] == f"cmpl-{other.headers['x-request-id']}"
