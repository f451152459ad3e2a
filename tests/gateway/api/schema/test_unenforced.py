"""Places of JSON Schemas that are not enforced, in answers and refusals of every API."""

from __future__ import annotations

import json
from typing import Any

import grpc
import httpx
import msgspec
import pytest
from outrider.gateway.api.openai.bodies import read_chat, read_completion
from outrider.gateway.api.responses.body import read_response
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import Grammar, SamplingParams

from tests.gateway.stack import MODEL, Stack

pytestmark = pytest.mark.timeout(300)

TAGS: dict[str, Any] = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
MALFORMED: dict[str, Any] = {"properties": {"tags": {"type": 5}}}
PLACE = "/properties/tags/uniqueItems"
NOW = {"type": "function", "function": {"name": "now"}}
HELLO = [{"role": "user", "content": "hello"}]


def _chat(schema: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    tag = {"type": "function", "function": {"name": "tag", "parameters": schema} | more}
    return read_chat, {"messages": HELLO, "tools": [NOW, tag]}


def _named_call(schema: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    return read_chat, _chat(schema, **more)[1] | {"tool_choice": {"type": "function", "function": {"name": "tag"}}}


def _format(schema: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    form = {"type": "json_schema", "json_schema": {"name": "tags", "schema": schema} | more}
    return read_completion, {"prompt": "a", "response_format": form}


def _response_tool(schema: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    return read_response, {
        "input": "a",
        "tools": [{"type": "function", "name": "tag", "parameters": schema} | more],
    }


def _response_text(schema: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    form = {"type": "json_schema", "name": "tags", "schema": schema} | more
    return read_response, {"input": "a", "text": {"format": form}}


def _guided(schema: Any) -> tuple[Any, dict[str, Any]]:
    return read_completion, {"prompt": "a", "structured_outputs": {"json": schema}}


def _guided_text(schema: Any) -> tuple[Any, dict[str, Any]]:
    return read_completion, {"prompt": "a", "structured_outputs": {"json": json.dumps(schema)}}


STRICT = [
    (_chat, "tools[1].function.parameters"),
    (_named_call, "tools[1].function.parameters"),
    (_format, "response_format.json_schema.schema"),
    (_response_tool, "tools[0].parameters"),
    (_response_text, "text.format.schema"),
]
ALL = [*STRICT, (_guided, "structured_outputs.json"), (_guided_text, "structured_outputs.json")]


def _read(asked: tuple[Any, dict[str, Any]], ignored: list[str] | None) -> Any:
    read, body = asked
    return read(msgspec.json.encode(body), ignored)


@pytest.mark.parametrize(("ask", "param"), ALL)
def test_a_place_that_is_not_enforced_is_ignored_by_its_name(ask: Any, param: str) -> None:
    ignored: list[str] = []
    _read(ask(TAGS), ignored)
    assert ignored == [param + PLACE]


@pytest.mark.parametrize(("ask", "param"), ALL)
def test_a_gateway_that_ignores_nothing_refuses_it(ask: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _read(ask(TAGS), None)
    assert (refused.value.param, refused.value.message.split(" cannot be enforced")[0]) == (param, param + PLACE)


@pytest.mark.parametrize(("ask", "param"), STRICT)
def test_strict_refuses_it_and_names_function_and_place(ask: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _read(ask(TAGS, strict=True), [])
    assert refused.value.param == param
    of = " of the function tag" if "tools" in param else ""
    assert refused.value.message == f"{param}{PLACE}{of} cannot be enforced: leave it out, or leave strict out"
    _read(ask({"type": "object"}, strict=True), None)


@pytest.mark.parametrize(("ask", "param"), ALL)
def test_a_malformed_schema_is_refused_with_its_place(ask: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _read(ask(MALFORMED), [])
    assert refused.value.param == param
    assert refused.value.message.startswith(f"{param}/properties/tags/type ")


def test_a_schema_that_no_call_uses_is_not_read() -> None:
    read, body = _chat(MALFORMED)
    _read((read, body | {"tool_choice": "none"}), None)
    _read((read, body | {"tool_choice": {"type": "function", "function": {"name": "now"}}}), None)


def test_an_answer_with_tools_names_the_place(shared: Stack) -> None:
    _, body = _chat(TAGS)
    answer = httpx.post(f"{shared.url}/v1/chat/completions", json=body | {"max_tokens": 3}, timeout=60)
    assert answer.status_code == 200, answer.text
    name = "tools[1].function.parameters" + PLACE
    assert (answer.headers["x-outrider-ignored"], answer.json()["outrider"]["ignored"]) == (name, [name])


def test_a_schema_that_the_verifier_refuses_is_named_by_its_function(shared: Stack) -> None:
    _, body = _chat(
        {"type": "object", "properties": {"a": {"minimum": 2, "maximum": 1, "type": "number"}}, "required": ["a"]}
    )
    refused = httpx.post(f"{shared.url}/v1/chat/completions", json=body, timeout=60)
    message = refused.json()["error"]["message"]
    assert refused.status_code == 400
    assert message.startswith("tools cannot be compiled: Unsatisfiable schema")
    assert message.endswith("(in the parameters of the function tag)")


async def test_an_answer_over_grpc_names_it(shared: Stack) -> None:
    sampling = SamplingParams(grammar=Grammar(json_schema=json.dumps(TAGS)), max_tokens=3)
    async with grpc.aio.insecure_channel(shared.grpc) as channel:
        asked = pb.GenerateRequest(model=MODEL, text="a", sampling=sampling)
        answer = await InferenceStub(channel).Complete(pb.CompleteRequest(request=asked))
    assert list(answer.choices[0].detail.ignored) == ["structured_outputs.json" + PLACE]


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (_format({"const": "a" * 280_000}), "response_format.json_schema.schema"),
        (_guided({"const": "a" * 280_000}), "structured_outputs.json"),
        (_response_text({"const": "a" * 280_000}), "text.format.schema"),
        (_chat({"properties": {f"p{place}": {"const": "a" * 1_000} for place in range(280)}}), "tools"),
    ],
)
def test_all_schemas_of_a_request_are_small(asked: tuple[Any, dict[str, Any]], where: str) -> None:
    reader, body = asked
    with pytest.raises(InvalidRequest, match="262144") as refused:
        reader(json.dumps(body).encode(), [])
    assert refused.value.param == where
