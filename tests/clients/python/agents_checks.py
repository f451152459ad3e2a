"""OpenAI's published package openai-agents, against the gateway at $ONE."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel

NAME = os.environ.get("MODEL", "toy")
MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
set_tracing_disabled(True)


class Paint(BaseModel):
    colour: Literal["red", "green", "blue"]
    coats: Literal[1, 2, 3]


@function_tool
def paint(colour: Literal["red", "green"]) -> str:
    """Paints."""
    return f"painted {colour}"


def agent(api: str, **more: Any) -> Agent:
    client = openai.AsyncOpenAI(base_url=f"{os.environ['ONE']}/v1", api_key="none", max_retries=0)
    settings = ModelSettings(temperature=0, max_tokens=200, tool_choice=more.pop("tool_choice", None))
    return Agent("painter", model=MODELS[api](NAME, client), model_settings=settings, **more)


def test_a_tool_is_called_and_the_agent_goes_on_with_its_result() -> None:
    async def run() -> list[Any]:
        asked = agent("chat", tools=[paint], tool_choice="paint", tool_use_behavior="stop_on_first_tool")
        whole = await Runner.run(asked, "Paint it red.")
        streamed = Runner.run_streamed(asked, "Paint it red.")
        async for _ in streamed.stream_events():
            pass
        goes_on = await Runner.run(agent("chat"), [*whole.to_input_list(), {"role": "user", "content": "Thanks."}])
        return [whole.final_output, streamed.final_output, goes_on.final_output]

    whole, streamed, after = asyncio.run(run())
    assert whole in {"painted red", "painted green"}
    assert streamed == whole
    assert isinstance(after, str)


@pytest.mark.parametrize("api", MODELS)
def test_an_output_has_its_type(api: str) -> None:
    assert isinstance(asyncio.run(Runner.run(agent(api, output_type=Paint), "Paint it.")).final_output, Paint)
