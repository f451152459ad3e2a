"""The published package smolagents, against the gateway at $ONE."""

from __future__ import annotations

import os

from smolagents import ChatMessage, OpenAIServerModel, tool

MODEL = OpenAIServerModel(
    os.environ.get("MODEL", "toy"), f"{os.environ['ONE']}/v1", api_key="none", max_tokens=200, temperature=0
)
SAID = [ChatMessage("user", [{"type": "text", "text": "def f("}])]


@tool
def paint(colour: str) -> str:
    """Paints.

    Args:
        colour: The colour.
    """
    return f"painted {colour}"


def test_a_stream_has_the_text_and_usage_of_the_answer() -> None:
    whole, chunks = MODEL.generate(SAID, max_tokens=20), list(MODEL.generate_stream(SAID, max_tokens=20))
    assert "".join(chunk.content or "" for chunk in chunks) == whole.content != ""
    assert (
        sum(chunk.token_usage.output_tokens for chunk in chunks if chunk.token_usage) == whole.token_usage.output_tokens
    )


def test_stop_sequences_end_an_answer() -> None:
    whole = MODEL.generate(SAID, max_tokens=20).content
    assert MODEL.generate(SAID, max_tokens=20, stop_sequences=[whole[2:4]]).content in whole[:4]


def test_a_tool_is_called() -> None:
    (call, *_) = MODEL.generate(SAID, tools_to_call_from=[paint]).tool_calls
    assert call.function.name == "paint"
