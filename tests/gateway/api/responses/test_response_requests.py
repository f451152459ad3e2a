"""Parameters of responses, and refusals that name the parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.stack import CONTEXT, MODEL
from tests.gateway.streaming import Gateway
from tests.gateway.strict_client import TOOL

pytestmark = pytest.mark.timeout(300)
IMAGE = {"type": "input_image", "image_url": "http://localhost"}
UNMEANT = {"type": 7}
ALLOWED = {"type": "allowed_tools", "mode": "auto"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
JSON_OBJECT = {"text": {"format": {"type": "json_object"}}}


@pytest.fixture
def http(one: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=one.url, timeout=60) as made:
        yield made


def test_what_is_not_stored_or_no_response_is_not_found(http: httpx.Client) -> None:
    asked = {"model": MODEL, "input": "a", "max_output_tokens": 2}
    made = http.post("/v1/responses", json=asked | {"store": False}).json()
    assert http.get(f"/v1/responses/{made['id']}").status_code == 404
    stored = http.post("/v1/responses", json=asked).json()
    assert http.get(f"/v1/streams/{stored['id'].removeprefix('resp_')}").status_code == 404
    with http.stream("POST", "/v1/completions", json={"prompt": "a", "stream": True}) as stream:
        stream.read()
    assert http.get(f"/v1/responses/resp_{stream.headers['x-request-id']}").status_code == 404


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        ({"input": 5}, "input", "a string, or an array"),
        ({"input": []}, "input", "at least one item"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "no images"),
        (
            {"input": [{"role": "user", "content": [IMAGE]}]},
            "input[0].content[0].type",
            "input_image",
        ),
        ({"input": [{"role": "user", "content": [{"type": "output_text", "text": ""}]}]}, "input[0].content", "assist"),
        ({"input": [{"role": "cook", "content": ""}]}, "input[0].role", "cook"),
        ({"input": [CALL | {"arguments": "[1]"}]}, "input[0].arguments", "must be the text of a JSON object"),
        ({"input": [CALL | {"arguments": '{"a"'}]}, "input[0].arguments", "must be the text of a JSON object"),
        ({"max_tokens": 5}, "max_tokens", "not supported"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"input": "a" * (CONTEXT + 1)}, "input", "tokens"),
        ({"conversation": "c"}, "conversation", "not supported"),
        ({"modalities": ["text", "audio"]}, "modalities", "not supported"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "not supported"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice", "only be given with tools"),
        ({"tools": [{"type": "namespace", "name": "a b", "tools": []}]}, "tools[0].name", "tools must be"),
        ({"input": [{"type": "reasoning", "content": "a"}]}, "input[0].content", "input[0] must be"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "there are: paint"),
        (
            {"tools": [TOOL], "tool_choice": ALLOWED | {"tools": [{"type": "function", "name": "f"}]}},
            "tool_choice",
            "there are: paint",
        ),
        ({"tools": [TOOL], "tool_choice": ALLOWED | {"tools": [{"type": "mcp"}]}}, "tool_choice.tools[0].type", "mcp"),
        ({"truncation": "oldest"}, "truncation", '"auto" or "disabled"'),
        ({"input": "a" * (CONTEXT + 1), "truncation": "auto"}, "input", "tokens"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].type", "compaction"),
        ({"top_logprobs": 2}, "top_logprobs", "include"),
        ({"include": ["everything"]}, "include[0]", "message.output_text.logprobs"),
        ({"background": True, "store": False}, "background", "store must be true"),
        ({"previous_response_id": "resp_none"}, "previous_response_id", "no such response"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": UNMEANT}}},
            "text.format.schema",
            "type",
        ),
        (
            JSON_OBJECT | {"structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "text.format",
        ),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "grammar"),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, asked: dict[str, Any], param: str, message: str) -> None:
    refused = http.post("/v1/responses", json={"model": MODEL, "input": "a"} | asked)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param), error
    assert message in error["message"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("starting_after=3", "starting_after"),
        ("stream=perhaps", "stream"),
        ("include=x", "include"),
        ("stream=true&starting_after=-1", "starting_after"),
    ],
)
def test_a_query_that_cannot_be_honoured_is_refused(http: httpx.Client, query: str, param: str) -> None:
    made = http.post("/v1/responses", json={"model": MODEL, "input": "a", "max_output_tokens": 1}).json()
    refused = http.get(f"/v1/responses/{made['id']}?{query}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    refused = http.post(f"/v1/responses/{made['id']}/cancel")
    assert refused.status_code == 400
    assert "background" in refused.json()["error"]["message"]
