"""Responses as Codex asks for them, and what other servers got wrong there."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from httpx_sse import EventSource
from outrider.engine.text import Tokenizer

from tests.gateway.calls import PAINT
from tests.gateway.stack import MODEL, Stack
from tests.gateway.strict_client import same, strict

pytestmark = pytest.mark.timeout(300)
PAINTS: Any = {"type": "function", "name": "paint", "description": "Paints.", "strict": False, "parameters": PAINT}
CODEX: dict[str, Any] = {
    "model": MODEL,
    "instructions": "You are a coding agent.",
    "input": [
        {
            "type": "message",
            "id": "msg_82f273e4",
            "role": "developer",
            "content": [{"type": "input_text", "text": "<skills_instructions>"}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "paint it"}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAAABn"},
        {"type": "function_call", "name": "spawn", "namespace": "agents", "arguments": "{}", "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "again"}]},
    ],
    "tools": [
        PAINTS,
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [PAINTS | {"name": "spawn"}]},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
        {"type": "local_shell"},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a22295-bd89-7190-aa28-334c2b79d270",
    "client_metadata": {"x-codex-installation-id": "4318da1f"},
}
"""A request as Codex 0.171 sends it, shortened."""
IGNORED = (
    "tools[2].custom",
    "tools[3].local_shell",
    "tools[4].web_search",
    "client_metadata",
    "reasoning.summary",
    "input[2].encrypted_content",
)


async def told(url: str, **more: Any) -> tuple[list[dict[str, Any]], httpx.Headers]:
    """The events of Codex's request, and the headers."""
    body = CODEX | {"max_output_tokens": 400, "seed": 3} | more
    async with (
        httpx.AsyncClient(base_url=url, timeout=200) as http,
        http.stream("POST", "/v1/responses", json=body, headers={"accept": "text/event-stream"}) as response,
    ):
        assert response.status_code == 200, await response.aread()
        return [event.json() async for event in EventSource(response).aiter_sse()], response.headers


def replayed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The output that a reader of ``events`` has, piece by piece: items must come in order and keep their ids."""
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if "item_id" in event:
            assert event["item_id"] == items[event["output_index"]]["id"]
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append(dict(event["item"]))
        elif kind == "content_part.added":
            items[-1]["content"].append(dict(event["part"]))
        elif kind == "output_text.delta":
            items[-1]["content"][event["content_index"]]["text"] += event["delta"]
        elif kind == "function_call_arguments.delta":
            items[-1]["arguments"] += event["delta"]
        elif kind == "output_item.done":
            assert items[-1] | {"status": event["item"]["status"]} == event["item"]
            items[-1] = event["item"]
    return items


async def test_a_request_of_codex_is_answered_with_what_it_cannot_have_named(shared: Stack) -> None:
    events, headers = await told(shared.url, max_output_tokens=12)
    last = events[-1]
    assert last["type"] in ("response.completed", "response.incomplete")
    assert tuple(headers["x-outrider-ignored"].split(", ")) == IGNORED
    assert tuple(last["response"]["outrider"]["ignored"]) == IGNORED
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [tool["type"] for tool in last["response"]["tools"]] == ["function", "namespace"]


@pytest.mark.parametrize("choice", ["auto", {"type": "function", "name": "spawn", "namespace": "agents"}])
async def test_items_of_the_stream_are_those_of_the_response(calling: Stack, choice: Any) -> None:
    mark = Tokenizer.load(calling.directory).added_token("<tool_call>")
    bias = {str(mark): 7.0} if choice == "auto" else {}
    events, _ = await told(calling.url, tool_choice=choice, logit_bias=bias)
    last = events[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    assert replayed(events) == last["response"]["output"]
    call = last["response"]["output"][-1]
    assert call["type"] == "function_call"
    if choice != "auto":
        assert (call["name"], call["namespace"], last["type"]) == ("spawn", "agents", "response.completed")
        json.loads(call["arguments"])


async def test_a_stream_that_calls_and_one_that_is_cut_have_an_end(calling: Stack) -> None:
    for length in (1, 3, 5, 20):
        events, _ = await told(calling.url, tool_choice="required", max_output_tokens=length)
        last = events[-1]
        assert (last["type"], last["response"]["incomplete_details"]) == (
            "response.incomplete",
            {"reason": "max_output_tokens"},
        )
        assert replayed(events) == last["response"]["output"]


async def test_tools_work_in_responses_as_in_chats_with_speculation_and_without(calling: Stack) -> None:
    function = {name: value for name, value in PAINTS.items() if name != "type"}
    told_calls = set()
    async with openai.AsyncOpenAI(base_url=f"{calling.url}/v1", api_key="none", max_retries=0) as client:
        for speculation in ({}, {"speculation": "off"}):
            more: Any = {"seed": 3} | speculation
            chat = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "paint"}],
                tools=[{"type": "function", "function": function}],  # type: ignore[list-item]
                tool_choice="required",
                parallel_tool_calls=False,
                extra_body=more,
            )
            response = await client.responses.create(
                model=MODEL,
                input="paint",
                tools=[PAINTS],
                tool_choice="required",
                parallel_tool_calls=False,
                extra_body=more,
            )
            (call,) = chat.choices[0].message.tool_calls or []
            (item,) = response.output
            assert item.type == "function_call"
            told_calls |= {call.function.arguments, item.arguments}  # type: ignore[union-attr]
    assert len(told_calls) == 1


async def test_openai_s_own_reader_has_the_calls_of_a_namespace(calling: Stack) -> None:
    asked: Any = {name: CODEX[name] for name in ("model", "tools", "include", "store", "parallel_tool_calls")}
    asked |= {"input": "paint", "tool_choice": "required", "max_output_tokens": 400, "extra_body": {"seed": 4}}
    async with strict(calling.url) as client:
        async with client.responses.stream(**asked | {"tools": CODEX["tools"][1:]}) as stream:
            final = await stream.get_final_response()
        whole = await client.responses.create(**asked | {"tools": CODEX["tools"][1:]})
    call, again = final.output[0], whole.output[0]
    assert call.type == again.type == "function_call"
    assert (call.name, call.namespace) == ("spawn", "agents")
    assert (call.arguments, call.name) == (again.arguments, again.name)
    assert same(whole.tools[0], final.tools[0])
