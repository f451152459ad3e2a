"""Calls whose arguments stand between tags, through a mesh: what clients see is JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from httpx_sse import EventSource

from tests.gateway.calls import END, PAINT, save_calling
from tests.gateway.stack import MODEL, Stack, events, stack
from tests.gateway.tool_calls.formats import template
from tests.processes import ALWAYS

pytestmark = pytest.mark.timeout(300)

SAID: Any = [{"role": "user", "content": "paint the wall"}]
SIZED = {"type": "object", "properties": {"size": {"enum": ["3", "two words"]}, "sure": {"type": "boolean"}}}
TOOLS: Any = [
    {"type": "function", "function": {"name": "paint", "parameters": PAINT}},
    {"type": "function", "function": {"name": "buy", "parameters": SIZED | {"additionalProperties": False}}},
]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh whose model writes calls as Qwen3-Coder does."""
    model = save_calling(tmp_path_factory.mktemp("models"), template("qwen3_coder"))
    with stack(model, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, nats_door="false")
        made.add_model("tokenizer")
        made.add_model("verifier", drafters='["suffix", "ngram"]', program=ALWAYS)
        made.wait_ready()
        yield made


@pytest.fixture
async def client(tagged: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{tagged.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def _asked(**more: Any) -> Any:
    asked = {"model": MODEL, "messages": SAID, "tools": TOOLS, "tool_choice": "required", "max_tokens": 900, "seed": 3}
    return asked | {"logit_bias": {str(END): 20}} | more


def _allowed(name: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}}]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}


def _check(name: str, arguments: str) -> None:
    said = json.loads(arguments)
    if name == "paint":
        assert (said["colour"] in ("red", "green"), said["coats"] in (1, 2), len(said)) == (True, True, 2)
    else:
        assert (name, said.keys() <= {"size", "sure"}) == ("buy", True)
        assert said.get("size", "3") in ("3", "two words")
        assert said.get("sure", True) in (True, False)


async def test_arguments_are_json_of_their_schema_whole_streamed_and_taken_up_again(
    client: openai.AsyncOpenAI, tagged: Stack
) -> None:
    for seed, name in enumerate(["paint", "buy", "buy"]):
        asked = _asked(seed=seed, tool_choice=_allowed(name))
        choice = (await client.chat.completions.create(**asked)).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        calls: Any = choice.message.tool_calls
        for call in calls:
            _check(call.function.name, call.function.arguments)
        async with client.chat.completions.stream(**asked) as stream:
            told: Any = (await stream.get_final_completion()).choices[0].message.tool_calls
        assert [call.function.arguments for call in told] == [call.function.arguments for call in calls]
        plain: Any = (await client.chat.completions.create(**asked, extra_body={"speculation": "off"})).choices[0]
        assert [call.function.arguments for call in plain.message.tool_calls] == [c.function.arguments for c in calls]
    async with httpx.AsyncClient(base_url=tagged.url, timeout=60) as http:
        async with http.stream("POST", "/v1/chat/completions", json=_asked(stream=True)) as response:
            request = response.headers["x-request-id"]
            sent = [event async for event in EventSource(response).aiter_sse()]
        chunks, ids = [event.json() for event in sent[:-1]], [event.id for event in sent]
        for place in range(0, len(ids) - 1, 5):
            headers = {"last-event-id": ids[place]}
            async with http.stream("GET", f"/v1/streams/{request}", headers=headers) as response:
                assert [event async for event in events(response)] == chunks[place + 1 :]


async def test_responses_and_chats_have_the_same_calls_and_take_them_back(client: openai.AsyncOpenAI) -> None:
    """As in vLLM's issue 46249, where calls worked in chats alone."""
    asked = _asked()
    message = (await client.chat.completions.create(**asked)).choices[0].message
    tools: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
    extra = {"seed": asked["seed"], "logit_bias": asked["logit_bias"]}
    response: Any = await client.responses.create(
        model=MODEL, input=SAID, tools=tools, tool_choice="required", extra_body=extra, max_output_tokens=900
    )
    calls: Any = message.tool_calls
    assert [(item.name, item.arguments) for item in response.output] == [
        (call.function.name, call.function.arguments) for call in calls
    ]
    results: Any = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in calls]
    going_on = _asked(messages=[*SAID, message.to_dict(), *results], tool_choice="none", max_tokens=3)
    assert (await client.chat.completions.create(**going_on)).usage is not None


async def test_only_allowed_tools_are_called(client: openai.AsyncOpenAI) -> None:
    for name in ("paint", "buy"):
        asked = _asked(tool_choice=_allowed(name), parallel_tool_calls=False)
        calls: Any = (await client.chat.completions.create(**asked)).choices[0].message.tool_calls
        assert [call.function.name for call in calls] == [name]
        _check(name, calls[0].function.arguments)
