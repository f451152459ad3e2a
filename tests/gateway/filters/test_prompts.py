"""Prompts are filtered before they are encoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from outrider.gateway.errors import PromptRefused
from outrider.gateway.filters.patterns import patterns
from outrider.gateway.filters.prompts import filter_prompt
from outrider.gateway.requests.request import Messages, Text, Tokens
from outrider.mesh.errors import InvalidRequest

from tests.gateway.filtering import ADDRESS, SECRET
from tests.gateway.filters.reading import chain


async def test_a_text_is_masked_or_refused() -> None:
    guard = chain(patterns({"secrets": "end"}))
    assert await filter_prompt(guard, Text(f"Mail {ADDRESS}", add_special=False)) == Text("Mail [email]", False)
    with pytest.raises(PromptRefused, match="the prompt is refused by a filter"):
        await filter_prompt(guard, Text(f"Use {SECRET}"))
    with pytest.raises(InvalidRequest, match="prompt must be text: prompts of this caller are filtered"):
        await filter_prompt(guard, Tokens([1]))


async def test_each_text_of_a_chat_is_masked_by_itself() -> None:
    def chat(address: str) -> list[dict[str, Any]]:
        parts = [
            {"type": "text", "text": f"to {address}"},
            {"type": "text", "text": "bob"},
            {"type": "text", "text": "@a.co"},
        ]
        call = {"id": ADDRESS, "function": {"name": "send", "arguments": json.dumps({"to": address})}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        return [{"role": "user", "content": f"I am {address}"}, {"role": "user", "content": parts}, answer]

    passed = await filter_prompt(chain(patterns({})), Messages(json.dumps(chat(ADDRESS)), tools="[1]"))
    assert isinstance(passed, Messages)
    assert json.loads(passed.json) == chat("[email]")
    assert passed.tools == "[1]"
