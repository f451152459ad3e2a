"""LangChain's published package for Anthropic's API, against the gateway at $ONE."""

from __future__ import annotations

import os
from typing import Any, Literal

import anthropic
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel, ConfigDict

HOW: Any = {"model": os.environ.get("MODEL", "toy"), "base_url": os.environ["ONE"], "api_key": "none", "max_retries": 0}
CHAT = ChatAnthropic(**HOW, max_tokens=200, temperature=0)


class Paint(BaseModel):
    """Says how to paint."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green", "blue"]


PAINT = {"name": "paint", "description": "Paints.", "input_schema": Paint.model_json_schema()}
"""As `convert_to_anthropic_tool` makes it, but other keys stay forbidden."""


@tool(args_schema=Paint)
def paint(colour: str) -> str:
    """Paints."""
    return f"painted {colour}"


def test_a_stream_has_the_text_and_usage_of_the_answer() -> None:
    whole, chunks = CHAT.invoke("def f(", max_tokens=20), list(CHAT.stream("def f(", max_tokens=20))
    assert "".join(chunk.text for chunk in chunks) == whole.text != ""
    used: Any = chunks[0]
    for chunk in chunks[1:]:
        used = used + chunk
    assert used.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_a_tool_is_called_streamed_or_not_and_its_result_sent_back() -> None:
    bound, messages = CHAT.bind_tools([PAINT], tool_choice="paint"), list[BaseMessage]([HumanMessage("Paint it.")])
    answer = bound.invoke(messages)
    streamed: Any = None
    for chunk in bound.stream(messages):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed.tool_calls[0]["args"] == answer.tool_calls[0]["args"]
    Paint.model_validate(answer.tool_calls[0]["args"])
    messages += [answer, *(paint.invoke(call) for call in answer.tool_calls)]
    assert CHAT.bind_tools([paint]).invoke(messages).content is not None


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_has_its_type(method: Any) -> None:
    assert isinstance(CHAT.with_structured_output(Paint, method=method).invoke("Paint it."), Paint)


def test_tokens_are_counted_and_errors_are_those_of_anthropic_s_package() -> None:
    assert CHAT.get_num_tokens_from_messages([HumanMessage("def f(")]) > 0
    with pytest.raises(anthropic.NotFoundError):
        ChatAnthropic(**HOW | {"model": "none"}, max_tokens=9).invoke("a")
