"""The unmodified OpenAI client with strict validation of responses."""

from __future__ import annotations

from typing import Any, Literal

import openai
import pydantic

from tests.gateway.stack import MODEL

REQUEST: Any = {
    "model": MODEL,
    "input": "def f(",
    "max_output_tokens": 40,
    "extra_body": {"seed": 7, "ignore_eos": True},
}
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


def strict(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, _strict_response_validation=True, timeout=60
    )


def same(one: Any, other: Any) -> bool:
    return bool(one.to_dict(mode="json") == other.to_dict(mode="json"))
