"""The published package LangChain, against the gateway at $ONE, and one whose model writes calls at $CALLING."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

import httpx
import openai
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ConfigDict

HOW: Any = {"model": "toy", "base_url": f"{os.environ['ONE']}/v1", "api_key": "none", "max_retries": 0}
CHAT = ChatOpenAI(**HOW, seed=3, max_tokens=20, extra_body={"ignore_eos": True})
CALLING = ChatOpenAI(**HOW)
RESPONDING = ChatOpenAI(**HOW, use_responses_api=True, max_tokens=20, extra_body={"ignore_eos": True, "seed": 3})


class Paint(BaseModel):
    """Says how to paint."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


@tool(args_schema=Paint)
def paint(colour: str, coats: int) -> str:
    """Paints."""
    return f"{coats} coats of {colour}"


def test_a_stream_has_the_text_and_usage_of_the_answer() -> None:
    whole = CHAT.invoke("def f(")
    chunks = list(CHAT.stream("def f(", stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == whole.content != ""
    assert whole.usage_metadata is not None
    (used,) = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert used["output_tokens"] == whole.usage_metadata["output_tokens"] == 20
    assert "length" in [chunk.response_metadata.get("finish_reason") for chunk in chunks]


def test_tasks_ask_as_well_and_many_at_once() -> None:
    async def ask() -> list[str]:
        streamed = "".join([str(chunk.content) async for chunk in CHAT.astream("def f(")])
        return [streamed, *(str(answer.content) for answer in await CHAT.abatch(["def f("] * 3))]

    assert set(asyncio.run(ask())) == {CHAT.invoke("def f(").content}


@pytest.mark.parametrize("choice", ["paint", "required"])
def test_a_tool_is_called_streamed_or_not_and_its_result_sent_back(choice: str) -> None:
    bound = CALLING.bind_tools([paint], tool_choice=choice, parallel_tool_calls=False, strict=True)
    messages: list[BaseMessage] = [HumanMessage("def f(")]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    Paint.model_validate(call["args"])
    streamed: Any = None
    for chunk in bound.stream(messages):
        streamed = chunk if streamed is None else streamed + chunk
    Paint.model_validate(streamed.tool_calls[0]["args"])
    messages += [answer, paint.invoke(call)]
    assert CHAT.invoke(messages).content


def test_a_tool_that_may_be_called_is_or_is_not() -> None:
    url = os.environ["CALLING"]
    (mark,) = httpx.post(f"{url}/v1/tokenize", json={"prompt": "<tool_call>"}).json()["tokens"]
    model = ChatOpenAI(**HOW | {"base_url": f"{url}/v1"}, seed=3)
    calling = model.bind_tools([paint], parallel_tool_calls=False).bind(logit_bias={str(mark): 100})
    messages: list[BaseMessage] = [HumanMessage("def f(")]
    answer = calling.invoke(messages)
    streamed: Any = None
    for chunk in calling.stream(messages):
        streamed = chunk if streamed is None else streamed + chunk
    (call,) = answer.tool_calls
    Paint.model_validate(call["args"])
    assert [(each["name"], each["args"]) for each in streamed.tool_calls] == [(call["name"], call["args"])]
    messages += [answer, paint.invoke(call)]
    silent = model.bind_tools([paint], tool_choice="auto").bind(logit_bias={str(mark): -100}, max_tokens=9)
    assert silent.invoke(messages).content
    assert not silent.invoke(messages).tool_calls


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_has_its_type(method: Any) -> None:
    assert isinstance(CALLING.with_structured_output(Paint, method=method).invoke("def f("), Paint)


def test_log_probabilities_are_returned() -> None:
    entries = CHAT.bind(logprobs=True, top_logprobs=2).invoke("def f(").response_metadata["logprobs"]["content"]
    assert len(entries) == 20
    assert all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 2 for entry in entries)


def test_the_responses_api_answers_streams_goes_on_and_calls() -> None:
    whole = RESPONDING.invoke("def f(")
    assert "".join(chunk.text for chunk in RESPONDING.stream("def f(")) == whole.text != ""
    going_on = RESPONDING.bind(previous_response_id=whole.response_metadata["id"]).invoke("more")
    again = RESPONDING.invoke([HumanMessage("def f("), AIMessage(whole.content), HumanMessage("more")])
    assert going_on.text == again.text
    calling = ChatOpenAI(**HOW, use_responses_api=True)
    assert isinstance(calling.with_structured_output(Paint).invoke("def f("), Paint)
    answer = calling.bind_tools([paint], tool_choice="paint", strict=True).invoke("def f(")
    assert RESPONDING.invoke([HumanMessage("def f("), answer, paint.invoke(answer.tool_calls[0])]).text


def test_plain_completions_are_streamed_too() -> None:
    model = OpenAI(**HOW, seed=3, max_tokens=20)
    assert "".join(model.stream("def f(")) == model.invoke("def f(")


def test_errors_are_those_it_knows() -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as bad:
        CHAT.invoke("a", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as unknown:
        ChatOpenAI(**HOW | {"model": "none"}).invoke("a")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(ContextOverflowError):
        CHAT.invoke("é" * 9000)
    embedding = OpenAIEmbeddings(**HOW, check_embedding_ctx_length=False)
    one, two = embedding.embed_documents(["a", "b"])
    assert embedding.embed_query("a") == one != two
