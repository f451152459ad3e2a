"""Which functions an answer may call: the forms of ``tool_choice``, and ids of calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from outrider.gateway.api.openai.bodies import read_chat
from outrider.gateway.api.schema.tools import call_id
from outrider.mesh.errors import InvalidRequest

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("paint", "wait", "stop")]


def _body(choice: Any, **more: Any) -> Any:
    chat = {"messages": [{"role": "user", "content": "go"}], "tools": TOOLS, "tool_choice": choice}
    return read_chat(json.dumps(chat | more).encode())


def _allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_those_that_may_be_called_and_others_are_shown(mode: str) -> None:
    body = _body(_allowed("stop", "paint", mode=mode))
    rules = body.call_rules
    assert (rules.names, rules.may_talk, rules.most) == (("paint", "stop"), mode == "auto", 16)
    assert "wait" in body.generation().prompt.tools
    assert body.shape(()).functions == ("paint", "stop")
    assert _body(_allowed("wait", mode=mode), parallel_tool_calls=False).call_rules.most == 1


def test_a_named_function_is_called_once() -> None:
    rules = _body({"type": "function", "function": {"name": "wait"}}).call_rules
    assert (rules.names, rules.may_talk, rules.most) == (("wait",), False, 1)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (_allowed("paint", "go"), "tool_choice names go; there are: paint, wait, stop"),
        ({"type": "function", "function": {"name": "go"}}, "there are: paint, wait, stop"),
        ({"type": "function"}, "tool_choice of type function must have function alone"),
        ({"type": "allowed_tools", "function": {"name": "wait"}}, "must have allowed_tools alone"),
        (_allowed("wait") | {"function": {"name": "wait"}}, "must have allowed_tools alone"),
        (_allowed(), "tool_choice"),
        (_allowed("wait", mode="none"), "tool_choice"),
    ],
)
def test_a_choice_that_cannot_be_is_refused_in_a_sentence(choice: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match="tool_choice") as refused:
        _body(choice).call_rules  # noqa: B018
    assert message in refused.value.message


def test_ids_of_calls_are_those_that_mistrals_templates_take() -> None:
    ids = {call_id(f"answer{number}", place) for number in range(100) for place in range(16)}
    assert len(ids) == 1600
    assert all(len(id_) == 9 and id_.isalnum() and id_.isascii() for id_ in ids)
    assert call_id("a", 1) == call_id("a", 1)
