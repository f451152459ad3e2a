"""The published package openai: its functions that the gateway's tests do not use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from outrider.engine.text import Tokenizer

from tests.gateway.stack import CONTEXT, MODEL, Stack
from tests.gateway.streaming import Gateway
from tests.gateway.strict_client import REQUEST, Paint
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)

SAID: Any = [{"role": "user", "content": "def f("}]


@pytest.fixture
async def client(one: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_raw_responses_have_the_id_that_errors_and_streams_bear_too(client: openai.AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=SAID, max_tokens=3)
    answer = raw.parse()
    assert raw.headers["content-type"] == "application/json"
    assert answer.id == f"chatcmpl-{raw.headers['x-request-id']}"
    assert answer._request_id == raw.request_id == raw.headers["x-request-id"]  # noqa: SLF001 - as OpenAI's documentation has it
    streaming = client.completions.with_streaming_response
    async with streaming.create(model=MODEL, prompt="def f(", max_tokens=3, stream=True) as response:
        lines = [line async for line in response.iter_lines()]
    assert lines[0].startswith('data: {"id":"cmpl-' + response.headers["x-request-id"])


async def test_helpers_of_the_beta_read_the_same(client: openai.AsyncOpenAI) -> None:
    answer = await client.beta.chat.completions.parse(model=MODEL, messages=SAID, response_format=Paint)
    assert isinstance(answer.choices[0].message.parsed, Paint)
    tools: Any = [openai.pydantic_function_tool(Paint)]
    async with client.chat.completions.stream(
        model=MODEL, messages=SAID, tools=tools, tool_choice="required", parallel_tool_calls=False
    ) as stream:
        kinds = [event.type async for event in stream]
    (call,) = (await stream.get_final_completion()).choices[0].message.tool_calls or []
    assert "tool_calls.function.arguments.done" in kinds
    assert isinstance(call.function.parsed_arguments, Paint)


async def test_an_optional_call_is_streamed(calling: Stack) -> None:
    mark = Tokenizer.load(calling.directory).added_token("<tool_call>")
    tools: Any = [openai.pydantic_function_tool(Paint)]
    async with openai.AsyncOpenAI(base_url=f"{calling.url}/v1", api_key="none", max_retries=0) as client:
        async with client.chat.completions.stream(
            model=MODEL, messages=SAID, tools=tools, parallel_tool_calls=False, logit_bias={str(mark): 100}
        ) as stream:
            kinds = [event.type async for event in stream]
        message = (await stream.get_final_completion()).choices[0].message
        (call,) = message.tool_calls or []
        assert isinstance(call.function.parsed_arguments, Paint)
        assert kinds.count("tool_calls.function.arguments.delta") > 1
        assert "tool_calls.function.arguments.done" in kinds
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": "done"}
        after = await client.chat.completions.create(
            model=MODEL, messages=[*SAID, message, result], tools=tools, max_tokens=3, logit_bias={str(mark): -100}
        )
        assert after.choices[0].finish_reason in ("length", "stop")  # without a seed, the answer may end at any token
        assert after.choices[0].message.tool_calls is None


async def test_a_response_is_followed_by_its_id(client: openai.AsyncOpenAI) -> None:
    begun = await client.responses.create(**REQUEST, background=True)
    async with client.responses.stream(response_id=begun.id) as stream:
        whole = [event async for event in stream]
    async with client.responses.stream(response_id=begun.id, starting_after=3) as stream:
        rest = [event async for event in stream]
    assert [event.type for event in rest] == [event.type for event in whole[4:]]
    assert whole[-1].type == "response.incomplete"


@pytest.mark.usefixtures("halted")
async def test_a_client_that_waits_no_longer_ends_the_generation(client: openai.AsyncOpenAI, one: Gateway) -> None:
    before = one.count('requests_total{route="/v1/completions",status="499"}')
    request: Any = {"model": MODEL, "prompt": "def f(", "max_tokens": CONTEXT - 100, "extra_body": {"ignore_eos": True}}
    with pytest.raises(openai.APITimeoutError):
        await client.with_options(timeout=1.0).completions.create(**request)
    await eventually(lambda: one.count('requests_total{route="/v1/completions",status="499"}') == before + 1)
