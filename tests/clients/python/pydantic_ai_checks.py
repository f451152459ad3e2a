"""The published package pydantic-ai, against the gateway at $ONE."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

URL, NAME = os.environ["ONE"], os.environ.get("MODEL", "toy")
OPENAI = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
MODELS: dict[str, Any] = {
    "chat": OpenAIChatModel(NAME, provider=OPENAI),
    "responses": OpenAIResponsesModel(NAME, provider=OPENAI),
    "messages": AnthropicModel(NAME, provider=AnthropicProvider(base_url=URL, api_key="none")),
}
SETTINGS: Any = {"max_tokens": 60, "temperature": 0}


class Paint(BaseModel):
    """Says how to paint."""

    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


@pytest.mark.parametrize("api", MODELS)
def test_a_stream_has_the_text_of_the_answer(api: str) -> None:
    async def streamed() -> str:
        async with agent.run_stream("def f(") as result:
            return str(await result.get_output())

    agent: Any = Agent(MODELS[api], model_settings=SETTINGS)
    whole = agent.run_sync("def f(")
    assert asyncio.run(streamed()) == whole.output != ""


@pytest.mark.parametrize("api", MODELS)
def test_an_output_by_a_call_has_its_type(api: str) -> None:
    agent: Any = Agent(MODELS[api], output_type=ToolOutput(Paint), model_settings=SETTINGS | {"max_tokens": 200})
    assert isinstance(agent.run_sync("Paint it red, two coats.").output, Paint)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_output_by_a_schema_has_its_type(api: str) -> None:
    agent: Any = Agent(MODELS[api], output_type=NativeOutput(Paint), model_settings=SETTINGS | {"max_tokens": 200})
    assert isinstance(agent.run_sync("Paint it red, two coats.").output, Paint)
