"""Tools that a model may call or not, with the OpenAI client's own types, through all APIs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import httpx
import openai
import pytest
from httpx_sse import EventSource
from outrider.engine.text import Tokenizer
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import SamplingParams

from tests.gateway.calls import END, TOOLS
from tests.gateway.stack import MODEL, Stack, events

pytestmark = pytest.mark.timeout(300)

SAID: Any = [{"role": "user", "content": "paint the wall"}]
NAMES = ("paint", "wait")


@pytest.fixture(scope="module")
def mark(calling: Stack) -> int:
    """The token that begins a call."""
    token = Tokenizer.load(calling.directory).added_token("<tool_call>")
    assert token is not None
    return token


@pytest.fixture
async def client(calling: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{calling.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


def _asked(mark: int, bias: int, **more: Any) -> Any:
    """A chat that may call; a bias on the mark of calls makes a call likelier."""
    return {
        "model": MODEL,
        "messages": SAID,
        "tools": TOOLS,
        "logit_bias": {str(mark): bias},
        "seed": 3,
        "max_tokens": 900,
    } | more


def _check(name: str, arguments: str) -> None:
    said = json.loads(arguments)
    assert name in NAMES
    assert said == {} if name == "wait" else set(said) == {"colour", "coats"}


async def test_an_answer_that_calls_nothing_is_text(client: openai.AsyncOpenAI, mark: int) -> None:
    for choice in ({}, {"tool_choice": "auto"}):
        answer = await client.chat.completions.create(**_asked(mark, -100, max_tokens=20) | choice)
        assert answer.choices[0].message.content
        assert answer.choices[0].message.tool_calls is None
        assert answer.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("parallel", [True, False])
async def test_calls_are_told_in_pieces_that_make_up_the_whole(
    client: openai.AsyncOpenAI, calling: Stack, mark: int, parallel: bool
) -> None:
    (line,) = Tokenizer.load(calling.directory).encode("\n")  # which stands between calls
    biases = {str(mark): 100, str(line): 50}
    asked = _asked(mark, 100, parallel_tool_calls=parallel, logit_bias=biases, max_tokens=2000)
    whole = (await client.chat.completions.create(**asked)).choices[0]
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    calls: Any = whole.message.tool_calls
    assert len(calls) == (16 if parallel else 1)
    told: dict[int, Any] = {}
    pieces = 0
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            if call.index not in told:
                assert (call.type, call.function.name) == ("function", calls[call.index].function.name)
                told[call.index] = [call.id, ""]
            told[call.index][1] += call.function.arguments or ""
            pieces += 1
        finish = chunk.choices[0].finish_reason
    assert finish == "tool_calls"
    assert [arguments for _, arguments in told.values()] == [call.function.arguments for call in calls]
    assert len({id_ for id_, _ in told.values()}) == len(calls) < pieces
    for call in calls:
        _check(call.function.name, call.function.arguments)


async def test_calls_that_have_to_be_end_behind_the_line_that_would_begin_another(
    client: openai.AsyncOpenAI, calling: Stack, mark: int
) -> None:
    (line,) = Tokenizer.load(calling.directory).encode("\n")
    biases = {mark: -100, line: 100, END: 50}
    asked = _asked(mark, 0, tool_choice="required", logit_bias={str(token): bias for token, bias in biases.items()})
    whole: Any = await client.chat.completions.create(**asked, extra_body={"return_tokens": True})
    (called,) = whole.choices[0].message.tool_calls
    _check(called.function.name, called.function.arguments)
    assert (whole.choices[0].finish_reason, whole.outrider["tokens"][-2:]) == ("tool_calls", [line, END])
    async with client.chat.completions.stream(**asked) as stream:
        told: Any = (await stream.get_final_completion()).choices[0]
    assert told.finish_reason == "tool_calls"
    assert [call.function.arguments for call in told.message.tool_calls] == [called.function.arguments]
    tools: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
    extra = {"seed": 3, "logit_bias": asked["logit_bias"]}
    response: Any = await client.responses.create(
        model=MODEL, input=SAID, tools=tools, tool_choice="required", extra_body=extra
    )
    assert [item.arguments for item in response.output] == [called.function.arguments]
    request = pb.GenerateRequest(
        messages_json=json.dumps(SAID),
        tools_json=json.dumps(TOOLS),
        tool_choice_json='"required"',
        sampling=SamplingParams(seed=3, logit_bias=biases, max_tokens=900),
    )
    async with grpc.aio.insecure_channel(calling.grpc) as opened:
        stub: Any = InferenceStub(opened)
        answer = (await stub.Complete(pb.CompleteRequest(request=request))).choices[0]
    assert [call.arguments for call in answer.tool_calls] == [called.function.arguments]
    assert answer.finish == "tool_calls"


async def _mixed(client: openai.AsyncOpenAI, mark: int) -> dict[str, Any]:
    """Parameters that make an answer hold text and then a call."""
    for seed in range(20):
        asked = _asked(mark, 4, seed=seed, parallel_tool_calls=False, max_tokens=400)
        message = (await client.chat.completions.create(**asked)).choices[0].message
        if message.tool_calls and message.content:
            return dict(asked)
    raise AssertionError("no seed has the model talk before it calls")


async def test_text_before_a_call_is_content_and_guessing_changes_neither(
    client: openai.AsyncOpenAI, mark: int
) -> None:
    asked = await _mixed(client, mark)
    message = (await client.chat.completions.create(**asked)).choices[0].message
    plain = (await client.chat.completions.create(**asked, extra_body={"speculation": "off"})).choices[0]
    assert plain.finish_reason == "tool_calls"
    said: Any = [[call.function for call in each.tool_calls or []] for each in (message, plain.message)]
    assert (said[0], message.content) == (said[1], plain.message.content)
    assert "<tool_call" not in (message.content or "")
    async with client.chat.completions.stream(**asked) as stream:
        final: Any = (await stream.get_final_completion()).choices[0].message
    assert (final.content, final.tool_calls[0].function.arguments) == (message.content, said[0][0].arguments)


async def test_a_stream_that_is_taken_up_again_goes_on_in_the_same_pieces(
    client: openai.AsyncOpenAI, calling: Stack, mark: int
) -> None:
    body = await _mixed(client, mark) | {"stream": True}
    async with httpx.AsyncClient(base_url=calling.url, timeout=60) as http:
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            request = response.headers["x-request-id"]
            sent = [event async for event in EventSource(response).aiter_sse()]
        told, ids = [event.json() for event in sent[:-1]], [event.id for event in sent]
        for place in range(0, len(ids) - 1, 7):
            headers = {"last-event-id": ids[place]}
            async with http.stream("GET", f"/v1/streams/{request}", headers=headers) as response:
                rest = [event async for event in events(response)]
            assert rest == told[place + 1 :]


async def test_a_chat_goes_on_with_what_was_called_and_what_came_of_it(client: openai.AsyncOpenAI, mark: int) -> None:
    message = (await client.chat.completions.create(**_asked(mark, 100))).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in message.tool_calls or []]
    going_on = [*SAID, message.to_dict(), *results]
    answer = await client.chat.completions.create(**_asked(mark, -100, messages=going_on, max_tokens=5))
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > len("paint the wall")


async def test_responses_tell_text_and_calls_item_by_item(client: openai.AsyncOpenAI, mark: int) -> None:
    chat = await _mixed(client, mark)
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    extra = {"seed": chat["seed"], "logit_bias": chat["logit_bias"]}
    asked: Any = {"model": MODEL, "input": SAID, "tools": tools, "parallel_tool_calls": False, "extra_body": extra}
    whole = await client.responses.create(**asked, max_output_tokens=400)
    message = (await client.chat.completions.create(**chat)).choices[0].message
    assert [item.type for item in whole.output] == ["message", "function_call"]
    assert whole.output_text == message.content
    told = [event async for event in await client.responses.create(**asked, max_output_tokens=400, stream=True)]
    kinds = [event.type.removeprefix("response.") for event in told]
    assert [kind for kind in kinds if not kind.endswith("delta")] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.done", "output_item.done", "completed"),
    ]
    last: Any = told[-1]
    assert [item.type for item in last.response.output] == ["message", "function_call"]
    for place, kind in enumerate(("output_text", "function_call_arguments")):
        deltas: Any = [event for event in told if event.type == f"response.{kind}.delta"]
        assert {event.output_index for event in deltas} == {place}
        item = last.response.output[place]
        said = item.content[0].text if place == 0 else item.arguments
        assert "".join(event.delta for event in deltas) == said
    after = await client.responses.create(
        model=MODEL, previous_response_id=last.response.id, input="go on", max_output_tokens=2
    )
    again = await client.responses.create(
        model=MODEL, input=[*SAID, *last.response.output, {"role": "user", "content": "go on"}], max_output_tokens=2
    )
    assert after.usage is not None
    assert again.usage is not None
    assert after.usage.input_tokens == again.usage.input_tokens


async def test_grpc_tells_text_and_calls_apart(client: openai.AsyncOpenAI, calling: Stack, mark: int) -> None:
    chat = await _mixed(client, mark)
    sampling = SamplingParams(seed=chat["seed"], max_tokens=400, logit_bias={mark: 4})
    request = pb.GenerateRequest(
        messages_json=json.dumps(SAID), tools_json=json.dumps(TOOLS), parallel_tool_calls=False, sampling=sampling
    )
    message: Any = (await client.chat.completions.create(**chat)).choices[0].message
    async with grpc.aio.insecure_channel(calling.grpc) as opened:
        stub: Any = InferenceStub(opened)
        told = [response async for response in stub.Generate(request)]
        whole = (await stub.Complete(pb.CompleteRequest(request=request))).choices[0]
    assert "".join(response.text for response in told) == whole.text == message.content
    assert [(call.name, call.arguments) for call in told[-1].tool_calls] == [
        (call.function.name, call.function.arguments) for call in message.tool_calls
    ]
    assert told[-1].finish == whole.finish == "tool_calls"
