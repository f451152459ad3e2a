"""Structured output over HTTP: response formats, guides and calls of functions, with the OpenAI client's own types."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from outrider.gateway.api.openai.bodies import read_chat, read_completion
from outrider.mesh.errors import InvalidRequest

from tests.gateway.stack import MODEL, Stack

MESSAGES: Any = [{"role": "user", "content": "def parse("}]
NO_NUMBER = {"type": "number", "minimum": 2, "maximum": 1}
COLOURS = ["red", "green", "blue"]


class Paint(pydantic.BaseModel):
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


SCHEMA = Paint.model_json_schema() | {"additionalProperties": False}
TOOLS: Any = [
    {"type": "function", "function": {"name": "paint", "description": "paints", "parameters": SCHEMA}},
    {
        "type": "function",
        "function": {
            "name": "wait",
            "parameters": {
                "type": "object",
                "properties": {"how": {"$ref": "#/$defs/How"}},
                "required": ["how"],
                "additionalProperties": False,
                "$defs": {"How": {"enum": ["here", "there"]}},
            },
        },
    },
]


@pytest.fixture
async def client(shared: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def http(shared: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as made:
        yield made


async def _complete(http: httpx.AsyncClient, **more: Any) -> Any:
    body = {"model": MODEL, "prompt": "def parse(", "max_tokens": 300, "seed": 3, "return_tokens": True} | more
    response = await http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_openai_client_parses_an_answer_into_its_type(client: openai.AsyncOpenAI) -> None:
    for seed in range(5):
        answer = await client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, seed=seed, response_format=Paint, max_tokens=300
        )
        assert isinstance(answer.choices[0].message.parsed, Paint)
        assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("outputs", "pattern"),
    [
        ({"json": SCHEMA}, r"\{.*\}"),
        ({"json": json.dumps(SCHEMA)}, r"\{.*\}"),
        ({"regex": "[ab]{3}c?"}, "[ab]{3}c?"),
        ({"choice": COLOURS}, "red|green|blue"),
        ({"grammar": 'root ::= "x" [0-9] "y"?'}, "x[0-9]y?"),
        ({"grammar": 'start: "x" /[0-9]/ "y"?'}, "x[0-9]y?"),
    ],
)
async def test_an_answer_is_what_it_has_to_be_with_speculation_and_without(
    http: httpx.AsyncClient, outputs: Any, pattern: str
) -> None:
    asked: Any = {"structured_outputs": outputs, "n": 2, "logprobs": 1, "frequency_penalty": 0.2, "top_p": 0.99}
    answer = await _complete(http, **asked, speculation="off")
    guessed = await _complete(http, **asked)
    assert guessed["choices"] == answer["choices"]
    for choice in answer["choices"]:
        assert re.fullmatch(pattern, choice["text"], re.DOTALL)
        assert choice["finish_reason"] == "stop"
        if "json" in outputs:
            Paint.model_validate_json(choice["text"])


async def test_json_that_is_any_object_begins_as_one(http: httpx.AsyncClient) -> None:
    for asked in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        text = (await _complete(http, **asked))["choices"][0]["text"]
        assert text.startswith("{")


async def test_a_named_function_is_called_with_its_arguments(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS, "seed": 1, "max_tokens": 300}
    asked["tool_choice"] = {"type": "function", "function": {"name": "paint"}}
    whole = await client.chat.completions.create(**asked)
    choice = whole.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "paint"
    Paint.model_validate_json(call.function.arguments)
    async with client.chat.completions.stream(**asked) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.tool_calls is not None
    streamed = final.choices[0].message.tool_calls[0]
    assert (streamed.id, streamed.function.arguments) != ("", "")
    assert (streamed.function.name, streamed.function.arguments) == ("paint", call.function.arguments)
    assert final.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("parallel", [True, False])
async def test_some_function_is_called_where_one_is_required(client: openai.AsyncOpenAI, parallel: bool) -> None:
    names = set()
    for seed in range(6):
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=parallel,
            seed=seed,
            max_tokens=1500,
        )
        calls: Any = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert 1 <= len(calls) <= (8 if parallel else 1)
        assert len({call.id for call in calls}) == len(calls)
        for call in calls:
            names.add(call.function.name)
            arguments = json.loads(call.function.arguments)
            assert arguments["how"] in ("here", "there") if call.function.name == "wait" else Paint(**arguments)
    assert names == {"paint", "wait"}


async def test_calls_that_are_cut_short_are_told_as_text(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice="required", max_tokens=5
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls is None
    assert "<tool_call>".startswith((answer.choices[0].message.content or "")[:11])


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "unclosed group"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": NO_NUMBER}}},
            "response_format.json_schema.schema",
            "response_format.json_schema.schema cannot be compiled",
        ),
        (
            {"structured_outputs": {"choice": ["a"]}, "ignore_eos": True},
            "ignore_eos",
            "may not be given with a grammar",
        ),
        ({"structured_outputs": {"choice": ["a"]}, "min_tokens": 2}, "min_tokens", "may not be given with a grammar"),
    ],
)
async def test_a_verifiers_refusal_bears_the_clients_own_name(
    http: httpx.AsyncClient, more: Any, param: str, message: str
) -> None:
    response = await http.post("/v1/completions", json={"model": MODEL, "prompt": "p", "max_tokens": 9} | more)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"regex": "a"}, "regex"),
        ({"ebnf": 'root ::= "a"'}, "ebnf"),
        ({"structural_tag": "{}"}, "structural_tag"),
        ({"tools": TOOLS, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "required", "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(more: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_chat(json.dumps({"model": "m", "messages": MESSAGES} | more).encode(), ignored=[]).generation()
    assert caught.value.param == param


def test_a_format_of_text_says_nothing_of_answers_that_have_to_be_calls() -> None:
    body = {"model": "m", "messages": MESSAGES, "tools": TOOLS, "tool_choice": "required"}
    asked = json.dumps(body | {"response_format": {"type": "json_object"}}).encode()
    assert read_chat(asked).generation().structure is None
    asked = json.dumps(body | {"response_format": {"type": "json_object"}, "tool_choice": "auto"}).encode()
    assert read_chat(asked).generation().structure is not None


def test_tools_are_shown_to_the_template_only_where_they_may_be_called() -> None:
    body = {"model": "m", "messages": MESSAGES, "tools": TOOLS}
    free: Any = read_chat(json.dumps(body).encode()).generation().prompt
    shown: Any = read_chat(json.dumps(body | {"tool_choice": "required"}).encode()).generation().prompt
    hidden: Any = read_chat(json.dumps(body | {"tool_choice": "none"}).encode()).generation().prompt
    assert json.loads(shown.tools) == json.loads(free.tools) == TOOLS
    assert hidden.tools == ""
    with pytest.raises(InvalidRequest, match="tools"):
        read_completion(json.dumps({"model": "m", "prompt": "p", "tools": TOOLS}).encode())
