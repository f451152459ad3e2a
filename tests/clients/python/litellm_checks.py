"""The published package litellm as a client, against the gateway at $ONE."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it fetches a list of prices

import litellm
import pytest
from pydantic import BaseModel, ConfigDict

HOW: Any = {"model": "openai/toy", "api_base": f"{os.environ['ONE']}/v1", "api_key": "none", "max_retries": 0}
SAID = [{"role": "user", "content": "def f("}]
ASKED: Any = HOW | {"messages": SAID, "max_tokens": 20, "seed": 3, "ignore_eos": True}


class Paint(BaseModel):
    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


TOOL = {"type": "function", "function": {"name": "paint", "parameters": Paint.model_json_schema()}}
NAMED = {"type": "function", "function": {"name": "paint"}}


def test_a_stream_has_the_text_and_usage_of_the_answer() -> None:
    whole = litellm.completion(**ASKED)
    chunks = list(litellm.completion(**ASKED, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content != ""
    assert whole.usage.completion_tokens == chunks[-1].usage.completion_tokens == 20
    assert whole.usage.prompt_tokens == chunks[-1].usage.prompt_tokens
    assert whole.choices[0].finish_reason == "length"


def test_tasks_ask_as_well() -> None:
    async def ask() -> set[str]:
        whole = await litellm.acompletion(**ASKED)
        stream = await litellm.acompletion(**ASKED, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        return {whole.choices[0].message.content, streamed}

    assert asyncio.run(ask()) == {litellm.completion(**ASKED).choices[0].message.content}


@pytest.mark.parametrize("choice", [NAMED, "required"])
def test_a_tool_is_called_streamed_or_not_and_its_result_sent_back(choice: Any) -> None:
    request = HOW | {"messages": SAID, "tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    answer = litellm.completion(**request).choices[0]
    assert answer.finish_reason == "tool_calls"
    (call,) = answer.message.tool_calls
    Paint.model_validate_json(call.function.arguments)
    streamed = litellm.stream_chunk_builder(list(litellm.completion(**request, stream=True))).choices[0].message
    Paint.model_validate_json(streamed.tool_calls[0].function.arguments)
    messages = [*SAID, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert litellm.completion(**ASKED | {"messages": messages}).choices[0].message.content


def test_a_response_format_is_held() -> None:
    answer = litellm.completion(**HOW, messages=SAID, response_format=Paint)
    Paint.model_validate_json(answer.choices[0].message.content)


def test_log_probabilities_and_parameters_of_ours_are_passed_on() -> None:
    logprobs = (
        litellm.completion(**ASKED, logprobs=True, top_logprobs=2, top_k=1, speculation="off").choices[0].logprobs
    )
    assert len(logprobs.content) == 20
    assert all(entry.token == entry.top_logprobs[0].token for entry in logprobs.content)


def test_responses_are_created_streamed_retrieved_and_continued() -> None:
    request: Any = HOW | {"input": "def f(", "max_output_tokens": 20, "extra_body": {"ignore_eos": True, "seed": 3}}
    whole = litellm.responses(**request)
    events = list(litellm.responses(**request, stream=True))
    assert events[-1].response.output[0].content[0].text == whole.output[0].content[0].text != ""
    read = litellm.get_responses(whole.id, api_base=HOW["api_base"], api_key="none")
    assert read.output[0].content[0].text == whole.output[0].content[0].text
    assert litellm.responses(**request | {"input": "more"}, previous_response_id=whole.id).output


@pytest.mark.parametrize(
    ("model", "base"), [("openai/toy", HOW["api_base"]), ("anthropic/toy", HOW["api_base"].removesuffix("/v1"))]
)
def test_anthropic_s_messages_are_answered_by_its_bridge_and_by_the_gateway_itself(model: str, base: str) -> None:
    async def ask(**more: Any) -> Any:
        asked: Any = {"model": model, "api_base": base, "api_key": "none", "max_tokens": 20, "messages": SAID}
        return await litellm.anthropic.messages.acreate(**asked, **more)

    async def streamed() -> str:
        return "".join([str(chunk) async for chunk in await ask(stream=True)])

    whole = asyncio.run(ask(tools=[{"name": "paint", "input_schema": Paint.model_json_schema()}]))
    assert (whole["type"], whole["role"]) == ("message", "assistant")
    assert whole["usage"]["output_tokens"] > 0
    assert "message_stop" in asyncio.run(streamed())


def test_texts_are_embedded() -> None:
    assert len(litellm.embedding(**HOW, input=["a", "b"], encoding_format="float").data) == 2


def test_plain_completions_and_models_are_there() -> None:
    request = HOW | {"model": "text-completion-openai/toy", "prompt": "def f(", "max_tokens": 20, "seed": 3}
    chunks = litellm.text_completion(**request, stream=True)
    streamed = "".join(chunk.choices[0].text or "" for chunk in chunks)
    assert streamed == litellm.text_completion(**request).choices[0].text
    models = litellm.get_valid_models(
        check_provider_endpoint=True, custom_llm_provider="openai", api_base=HOW["api_base"], api_key="none"
    )
    assert "toy" in models


def test_errors_are_those_it_knows() -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(**ASKED, temperature=-1)
    with pytest.raises(litellm.NotFoundError, match="does not exist"):
        litellm.completion(**ASKED | {"model": "openai/none"})
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**ASKED | {"messages": [{"role": "user", "content": "é" * 9000}]})
    with pytest.raises(litellm.Timeout):
        litellm.completion(**ASKED | {"max_tokens": 4000, "timeout": 0.01})
