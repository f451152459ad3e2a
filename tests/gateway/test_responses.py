"""OpenAI's Responses API, with the unmodified client, which is to find nothing that its types do not allow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from outrider.mesh.registry import Registry
from outrider.wire.frames import Finish

from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway, finish, holder

pytestmark = pytest.mark.timeout(300)

ASKED: Any = {"model": MODEL, "input": "def f(", "max_output_tokens": 40, "extra_body": {"seed": 7, "ignore_eos": True}}
LONG: Any = ASKED | {"max_output_tokens": CONTEXT - 200}
TEXT_EVENTS = ["created", "in_progress", "output_item.added", "content_part.added"]
TEXT_ENDS = ["output_text.done", "content_part.done", "output_item.done", "incomplete"]


class Paint(pydantic.BaseModel):
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


TOOL: Any = {
    "type": "function",
    "name": "paint",
    "strict": True,
    "parameters": Paint.model_json_schema() | {"additionalProperties": False},
}

IMAGE = {"type": "input_image", "image_url": "http://localhost"}
UNMEANT = {"type": 7}
JSON_OBJECT = {"text": {"format": {"type": "json_object"}}}


def _client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, _strict_response_validation=True, timeout=60
    )


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with _client(one.url) as made:
        yield made


@pytest.fixture
async def elsewhere(other: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with _client(other.url) as made:
        yield made


@pytest.fixture
def http(one: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=one.url, timeout=60) as made:
        yield made


def _same(one: Any, other: Any) -> bool:
    return bool(one.to_dict(mode="json") == other.to_dict(mode="json"))


async def test_a_response_is_the_chat_s_answer_and_is_read_again_anywhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    made = await client.responses.create(**ASKED, instructions="be brief", metadata={"a": "b"})
    chat = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "def f("}],
        max_tokens=40,
        extra_body=ASKED["extra_body"],
    )
    assert made.output_text == chat.choices[0].message.content
    assert (made.status, made.metadata, made.instructions) == ("incomplete", {"a": "b"}, "be brief")
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.usage is not None
    assert chat.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (chat.usage.prompt_tokens, 40)
    assert _same(await elsewhere.responses.retrieve(made.id), made)


def test_the_client_that_waits_works_as_well(one: Gateway) -> None:
    with openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", _strict_response_validation=True) as client:
        told = list(client.responses.create(**ASKED, stream=True))
        made = told[-1].response  # type: ignore[union-attr]
        assert _same(client.responses.retrieve(made.id), made)
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)


async def test_events_come_in_their_order_and_make_up_the_response(client: openai.AsyncOpenAI) -> None:
    told = [event async for event in await client.responses.create(**ASKED, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in told]
    deltas = [event.delta for event in told if event.type == "response.output_text.delta"]
    assert kinds == [*TEXT_EVENTS, *["output_text.delta"] * len(deltas), *TEXT_ENDS]
    assert [event.sequence_number for event in told] == list(range(len(told)))
    last = told[-1]
    assert last.type == "response.incomplete"
    assert len(deltas) > 1
    assert "".join(deltas) == last.response.output_text
    assert _same(await client.responses.retrieve(last.response.id), last.response)


async def test_the_clients_own_accumulation_agrees(client: openai.AsyncOpenAI) -> None:
    async with client.responses.stream(
        model=MODEL, input="def parse(", text_format=Paint, extra_body={"seed": 1}, max_output_tokens=300
    ) as stream:
        final = await stream.get_final_response()
    assert isinstance(final.output_parsed, Paint)
    assert final.status == "completed"


async def test_every_place_of_a_finished_stream_is_resumed_with_the_very_events_behind_it(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    asked = ASKED | {"extra_body": ASKED["extra_body"] | {"return_tokens": True}}
    include: Any = ["message.output_text.logprobs"]
    stream = await client.responses.create(**asked, stream=True, include=include, top_logprobs=2)
    told = [event.to_dict(mode="json") async for event in stream]
    request = told[0]["response"]["id"]
    for place in (0, 3, 4, 20, len(told) - 2, len(told) - 1):
        rest = await elsewhere.responses.retrieve(request, stream=True, starting_after=place)
        assert [event.to_dict(mode="json") async for event in rest] == told[place + 1 :]
    delta = told[5]
    assert len(delta["logprobs"]) == len(delta["outrider"]["tokens"])
    assert len(delta["logprobs"][0]["top_logprobs"]) == 2


async def test_a_background_response_needs_no_reader_and_is_polled_anywhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    made = await client.responses.create(**ASKED, background=True)
    assert (made.status, made.background, made.output) == ("queued", True, [])
    whole = await _ended(elsewhere, made.id)
    assert whole.status == "incomplete"
    assert whole.output_text == (await client.responses.create(**ASKED, store=False)).output_text


async def test_a_background_stream_goes_on_without_its_reader_and_is_resumed_elsewhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    asked = ASKED | {"max_output_tokens": 400}
    begun = []
    async for event in await client.responses.create(**asked, background=True, stream=True):
        begun.append(event.to_dict(mode="json"))
        if len(begun) == 30:
            break
    request = begun[0]["response"]["id"]
    rest = await elsewhere.responses.retrieve(request, stream=True, starting_after=29)
    told = begun + [event.to_dict(mode="json") async for event in rest]
    again = await client.responses.retrieve(request, stream=True)
    assert [event.to_dict(mode="json") async for event in again] == told
    assert told[-1]["response"]["usage"]["output_tokens"] == 400


async def test_a_background_response_outlives_its_gateway_when_it_is_asked_for(
    streaming: Stack, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    killed = Gateway(streaming, patience_s=1)
    await killed.ready()
    async with _client(killed.url) as client:
        made = await client.responses.create(**LONG, background=True)
    request = made.id.removeprefix("resp_")
    await holder(streaming_registry, request)
    await asyncio.to_thread(killed.process.kill)
    assert await finish(streaming_registry, request) is Finish.CANCELLED
    whole = await _ended(elsewhere, made.id)
    assert whole.usage is not None
    assert (whole.status, whole.usage.output_tokens) == ("incomplete", CONTEXT - 200)


async def test_cancelling_frees_the_verifier_and_is_told_by_all(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    made = await client.responses.create(**LONG, background=True)
    assert (await elsewhere.responses.cancel(made.id)).status == "cancelled"
    assert await finish(streaming_registry, made.id.removeprefix("resp_")) is Finish.CANCELLED
    for each in (client, elsewhere):
        assert (await each.responses.retrieve(made.id)).status == "cancelled"
        assert (await each.responses.cancel(made.id)).status == "cancelled"
    told = [event async for event in await client.responses.retrieve(made.id, stream=True)]
    assert told[-1].type == "response.failed"
    assert told[-1].response.status == "cancelled"


async def test_a_stored_response_whose_client_left_is_cancelled(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, streaming_registry: Registry
) -> None:
    stream = await client.responses.create(**LONG, stream=True)
    delta = await anext(event async for event in stream if event.type == "response.output_text.delta")
    await stream.close()
    request = delta.item_id.removeprefix("msg_")
    assert await finish(streaming_registry, request) is Finish.CANCELLED
    assert (await _ended(elsewhere, f"resp_{request}")).status == "cancelled"


async def test_a_schema_is_held(client: openai.AsyncOpenAI) -> None:
    made = await client.responses.parse(model=MODEL, input="def parse(", text_format=Paint, extra_body={"seed": 4})
    assert isinstance(made.output_parsed, Paint)
    made = await client.responses.create(
        model=MODEL, input="x", text={"format": {"type": "json_object"}}, extra_body={"seed": 4}, max_output_tokens=500
    )
    assert made.status == "incomplete" or isinstance(json.loads(made.output_text), dict)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "paint"}])
async def test_a_function_that_has_to_be_called_is(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, choice: Any
) -> None:
    asked: Any = {"model": MODEL, "tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    asked |= {"extra_body": {"seed": 3}, "max_output_tokens": 400}
    told = [event async for event in await client.responses.create(input="paint", **asked, stream=True)]
    assert [event.type.removeprefix("response.") for event in told] == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = told[-1]
    assert done.type == "response.completed"
    call = done.response.output[0]
    assert call.type == "function_call"
    assert call.name == "paint"
    Paint.model_validate_json(call.arguments)
    assert _same(await elsewhere.responses.retrieve(done.response.id), done.response)
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    after = await elsewhere.responses.create(
        model=MODEL, previous_response_id=done.response.id, input=[result], max_output_tokens=5
    )
    first: Any = {"role": "user", "content": "paint"}
    told_again = await elsewhere.responses.create(
        model=MODEL, input=[first, call.to_dict(), result], max_output_tokens=5, store=False
    )
    assert after.usage is not None
    assert told_again.usage is not None
    assert after.usage.input_tokens == told_again.usage.input_tokens


async def test_a_conversation_goes_on_from_a_stored_response(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    first = await client.responses.create(**ASKED)
    asked: Any = {"model": MODEL, "max_output_tokens": 20, "extra_body": {"seed": 1}}
    second = await elsewhere.responses.create(**asked, previous_response_id=first.id, input="and g(")
    third = await client.responses.create(**asked, previous_response_id=second.id, input="and h(")
    said: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "def f("}]},
        first.output[0].to_dict(),
        {"type": "message", "role": "user", "content": "and g("},
        *[item.to_dict() for item in second.output],
        {"role": "user", "content": "and h("},
    ]
    whole = await client.responses.create(**asked, input=said)
    assert whole.output_text == third.output_text
    assert third.usage is not None
    assert whole.usage is not None
    assert whole.usage.input_tokens == third.usage.input_tokens


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
        ({"inputs": "a"}, "inputs", "did you mean input"),
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
        ({"max_output_token": 5}, "max_output_token", "did you mean max_output_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
        ({"input": "a" * (CONTEXT + 1)}, "input", "tokens"),
        ({"conversation": "c"}, "conversation", "not supported"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "not supported"),
        ({"truncation": "auto"}, "truncation", "not supported"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "web_search"),
        ({"tools": [TOOL]}, "tool_choice", "tool_choice auto is not supported"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "there are: paint"),
        ({"top_logprobs": 2}, "top_logprobs", "include"),
        ({"include": ["file_search_call.results"]}, "include[0]", "message.output_text.logprobs"),
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


async def _ended(client: openai.AsyncOpenAI, id_: str) -> Any:
    """The response, polled until it has ended."""
    async with asyncio.timeout(100):
        while (made := await client.responses.retrieve(id_)).status in ("queued", "in_progress"):
            await asyncio.sleep(0.1)
    return made
