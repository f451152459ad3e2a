"""OpenAI's Responses API: answers, events and conversations, the same at every gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from outrider.engine.text import Tokenizer
from outrider.gateway.api.responses.body import read_response
from outrider.gateway.api.responses.stored_form import ResponseShape
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.models import ServedModel
from outrider.mesh.errors import Unavailable
from outrider.wire.frames import Finish, Frame, Usage

from tests.gateway.stack import MODEL
from tests.gateway.streaming import Gateway
from tests.gateway.strict_client import REQUEST, TEXT_ENDS, TEXT_EVENTS, TOOL, Paint, same, strict

pytestmark = pytest.mark.timeout(300)
ALLOWED: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "paint"}]}


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with strict(one.url) as made:
        yield made


@pytest.fixture
async def elsewhere(other: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with strict(other.url) as made:
        yield made


async def test_a_response_is_the_chat_s_answer_and_is_read_again_anywhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    made = await client.responses.create(**REQUEST, instructions="be brief", metadata={"a": "b"})
    chat = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "def f("}],
        max_tokens=40,
        extra_body=REQUEST["extra_body"],
    )
    assert made.output_text == chat.choices[0].message.content
    assert (made.status, made.metadata, made.instructions) == ("incomplete", {"a": "b"}, "be brief")
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.usage is not None
    assert chat.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (chat.usage.prompt_tokens, 40)
    assert same(await elsewhere.responses.retrieve(made.id), made)


def test_the_client_that_waits_works_as_well(one: Gateway) -> None:
    with openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", _strict_response_validation=True) as client:
        told = list(client.responses.create(**REQUEST, stream=True))
        made = told[-1].response  # type: ignore[union-attr]
        assert same(client.responses.retrieve(made.id), made)
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)


async def test_events_come_in_their_order_and_make_up_the_response(client: openai.AsyncOpenAI) -> None:
    told = [event async for event in await client.responses.create(**REQUEST, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in told]
    deltas = [event.delta for event in told if event.type == "response.output_text.delta"]
    assert kinds == [*TEXT_EVENTS, *["output_text.delta"] * len(deltas), *TEXT_ENDS]
    assert [event.sequence_number for event in told] == list(range(len(told)))
    last = told[-1]
    assert last.type == "response.incomplete"
    assert len(deltas) > 1
    assert "".join(deltas) == last.response.output_text
    assert same(await client.responses.retrieve(last.response.id), last.response)


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
    asked = REQUEST | {"extra_body": REQUEST["extra_body"] | {"return_tokens": True}}
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


async def test_a_schema_is_held(client: openai.AsyncOpenAI) -> None:
    made = await client.responses.parse(model=MODEL, input="def parse(", text_format=Paint, extra_body={"seed": 4})
    assert isinstance(made.output_parsed, Paint)
    made = await client.responses.create(
        model=MODEL, input="x", text={"format": {"type": "json_object"}}, extra_body={"seed": 4}, max_output_tokens=500
    )
    assert made.status == "incomplete" or isinstance(json.loads(made.output_text), dict)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "paint"}, ALLOWED])
async def test_a_function_that_has_to_be_called_is(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, choice: Any
) -> None:
    tools = [TOOL] if choice != ALLOWED else [TOOL | {"name": "blot"}, TOOL]
    asked: Any = {"model": MODEL, "tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
    asked |= {"extra_body": {"seed": 3}, "max_output_tokens": 400}
    told = [event async for event in await client.responses.create(input="paint", **asked, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in told]
    pieces = kinds.count("function_call_arguments.delta")
    assert pieces > 1
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        *["function_call_arguments.delta"] * pieces,
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
    assert same(await elsewhere.responses.retrieve(done.response.id), done.response)
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


async def test_what_a_response_was_asked_with_is_listed_anywhere(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    called: Any = {"type": "function_call", "call_id": "c", "name": "paint", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "done"}
    said: Any = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}, called, result]
    first = await client.responses.create(model=MODEL, input=said, instructions="i", max_output_tokens=2)
    made = await client.responses.create(model=MODEL, input="c", previous_response_id=first.id, max_output_tokens=2)
    pages = elsewhere.responses.input_items.list(made.id, limit=2, order="asc")
    items: list[Any] = [item async for item in pages]
    assert [item.type for item in items] == ["message"] * 2 + ["function_call", "function_call_output"] + [
        "message"
    ] * 2
    texts = [item.content[0].text for item in items if item.type == "message"]
    assert texts == ["a", "b", first.output_text, "c"]
    assert [item.role for item in items if item.type == "message"] == ["developer", "user", "assistant", "user"]
    assert (items[2].arguments, items[3].output) == ("{}", "done")
    latest = await elsewhere.responses.input_items.list(made.id)
    assert [item.id for item in latest.data] == [item.id for item in reversed(items)]
    assert len({item.id for item in items}) == len(items)
    with pytest.raises(openai.BadRequestError, match="after"):
        await client.responses.input_items.list(made.id, after="x")
    with pytest.raises(openai.NotFoundError):
        await client.responses.input_items.list("resp_x")


async def test_the_tokens_of_an_input_are_counted_as_it_would_be_asked_with(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "input": "b", "instructions": "a", "tools": [TOOL]}
    counted = await client.responses.input_tokens.count(**asked)
    made = await client.responses.create(**asked, max_output_tokens=2)
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens
    going_on: Any = {"model": MODEL, "input": "c", "previous_response_id": made.id}
    after = await client.responses.create(**going_on, max_output_tokens=2)
    assert after.usage is not None
    assert (await client.responses.input_tokens.count(**going_on)).input_tokens == after.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="input") as caught:
        await client.responses.input_tokens.count(model=MODEL, input="a" * 5000)
    assert caught.value.param == "input"


async def test_a_call_that_is_cut_short_is_told_as_its_text(client: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "tools": [TOOL], "tool_choice": "required", "max_output_tokens": 5}
    told = [event async for event in await client.responses.create(input="paint", **asked, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in told]
    assert kinds == [*TEXT_EVENTS, "output_text.delta", *TEXT_ENDS]
    last = told[-1]
    assert last.type == "response.incomplete"
    assert "<tool_call>".startswith(last.response.output_text[:11])


async def test_parameters_that_leave_no_token_fail_the_response(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI, directory: Path
) -> None:
    every = [[token] for token in range(Tokenizer.load(directory).vocabulary_size)]
    with pytest.raises(openai.BadRequestError, match="leave no token"):
        await client.responses.create(model=MODEL, input="a", extra_body={"bad_words": every})
    asked: Any = {"model": MODEL, "input": "a", "extra_body": {"bad_words": every}}
    told = [event async for event in await client.responses.create(**asked, stream=True)]
    last = told[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "invalid_prompt"
    assert same(await elsewhere.responses.retrieve(last.response.id), last.response)


async def test_a_failure_that_may_pass_leaves_the_number_where_it_was() -> None:
    shape = ResponseShape.of(read_response(b'{"input": "a"}'), [])
    builder = shape.builder(Key("t", "r"), _record(), Seal())
    events = [*builder.begin(), *builder.take(Frame("r", 0, [1], ["x"], [""]))]
    for interruption in builder.interrupt(Unavailable("no verifier")):
        assert interruption.sequence_number == events[-1].sequence_number == 4
    after = builder.take(Frame("r", 1, [2], ["y"], [""], Finish.STOP, Usage(1, 2)))
    assert [event.sequence_number for event in after] == list(range(5, 10))
    assert builder.response().status == "completed"


def _record() -> Record:
    return Record(0, ServedModel("m", "v", 8), b"", b"", b"", 1, 1, False, b"")


async def test_a_conversation_goes_on_from_a_stored_response(
    client: openai.AsyncOpenAI, elsewhere: openai.AsyncOpenAI
) -> None:
    first = await client.responses.create(**REQUEST)
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


async def test_a_conversation_is_not_compacted_and_the_refusal_says_what_helps(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r'^Error code: 404 .*set truncation to "auto"'):
        await client.responses.compact(model=MODEL, input="def f(")
