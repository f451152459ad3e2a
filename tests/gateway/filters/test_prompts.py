"""Prompts are filtered before they are encoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from outrider.gateway.errors import PromptRefused
from outrider.gateway.filters.patterns import patterns
from outrider.gateway.filters.prompts import filter_prompt
from outrider.gateway.request.generation import Messages, Text, Tokens
from outrider.mesh.errors import InvalidRequest

from tests.gateway.filtering import ADDRESS, SECRET
from tests.gateway.filters.reading import chain


async def test_a_text_is_masked_or_refused() -> None:
    guard = chain(patterns({"secrets": "end"}))
    assert await filter_prompt(guard, Text(f"Mail {ADDRESS}", add_special=False)) == Text("Mail [email]", False)
    with pytest.raises(PromptRefused, match="the prompt is refused by a filter"):
        await filter_prompt(guard, Text(f"Use {SECRET}"))
    with pytest.raises(InvalidRequest, match="must be text"):
        await filter_prompt(guard, Tokens([1]))


async def test_each_text_of_a_chat_is_masked_by_itself() -> None:
    def chat(address: str) -> list[dict[str, Any]]:
        parts = [
            {"type": "text", "text": f"to {address}"},
            {"type": "text", "text": "bob"},
            {"type": "text", "text": "@a.co"},
        ]
        call = {"id": address, "function": {"name": "send", "arguments": json.dumps({"to": address})}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call], "name": address}
        return [{"role": f"user {address}", "content": f"I am {address}"}, {"role": "user", "content": parts}, answer]

    passed = await filter_prompt(chain(patterns({})), Messages(json.dumps(chat(ADDRESS)), tools="[1]"))
    assert isinstance(passed, Messages)
    assert json.loads(passed.json) == chat("[email]")
    assert passed.tools == "[1]"


def escaped(value: Any) -> str:
    """JSON with ``@`` and ``-`` written by their numbers."""
    return json.dumps(value).replace("@", r"\u0040").replace("sk-", r"sk\u002d")


async def test_arguments_are_read_as_the_template_reads_them() -> None:
    def chat(arguments: str) -> Messages:
        call = {"id": "1", "function": {"name": "send", "arguments": arguments}}
        return Messages(json.dumps([{"role": "assistant", "content": None, "tool_calls": [call]}]))

    def arguments_of(prompt: Any) -> str:
        return str(json.loads(prompt.json)[0]["tool_calls"][0]["function"]["arguments"])

    guard = chain(patterns({"secrets": "end"}))
    passed = await filter_prompt(guard, chat(escaped({"to": [ADDRESS], ADDRESS: 1})))
    assert json.loads(arguments_of(passed)) == {"to": ["[email]"], "[email]": 1}
    harmless = r'{"to":  "\u0062ob", "n": 1e3}'
    assert arguments_of(await filter_prompt(guard, chat(harmless))) == harmless
    assert arguments_of(await filter_prompt(guard, chat(f"no JSON: {ADDRESS}"))) == "no JSON: [email]"
    with pytest.raises(PromptRefused):
        await filter_prompt(guard, chat(escaped({"key": SECRET})))
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        await filter_prompt(guard, chat("[" * 900 + escaped(ADDRESS) + "]" * 900))


async def test_the_variables_of_a_template_are_read() -> None:
    guard = chain(patterns({"secrets": "end"}))
    prompt = Messages("[]", variables=escaped({"mood": {ADDRESS: [ADDRESS, 1, None]}}))
    passed = await filter_prompt(guard, prompt)
    assert isinstance(passed, Messages)
    assert json.loads(passed.variables) == {"mood": {"[email]": ["[email]", 1, None]}}
    with pytest.raises(PromptRefused):
        await filter_prompt(guard, Messages("[]", variables=escaped({"mood": SECRET})))
    assert await filter_prompt(guard, Messages("[]", variables='{"a":1}')) == Messages("[]", variables='{"a":1}')
