"""LlamaIndex's published package for servers like OpenAI's, against the gateway at $ONE."""

from __future__ import annotations

import os
from typing import Any, Literal

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

HOW: Any = {
    "model": os.environ.get("MODEL", "toy"),
    "api_base": f"{os.environ['ONE']}/v1",
    "api_key": "none",
    "is_chat_model": True,
    "is_function_calling_model": True,
    "max_retries": 0,
    "temperature": 0,
}
LLM = OpenAILike(**HOW, max_tokens=40)
SAID = [ChatMessage("def f(")]


class Paint(BaseModel):
    """Says how to paint."""

    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


def test_a_stream_has_the_text_of_the_answer_in_chats_and_completions() -> None:
    assert "".join(chunk.delta or "" for chunk in LLM.stream_chat(SAID)) == LLM.chat(SAID).message.content != ""
    plain = OpenAILike(**HOW | {"is_chat_model": False}, max_tokens=20)
    assert "".join(chunk.delta or "" for chunk in plain.stream_complete("def f(")) == plain.complete("def f(").text


def test_structured_output_has_its_type() -> None:
    told = LLM.model_copy(update={"max_tokens": 200}).as_structured_llm(Paint).chat(SAID)
    assert isinstance(told.raw, Paint)
