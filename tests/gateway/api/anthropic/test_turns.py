"""Turns of Anthropic's Messages API become the messages, tools and parameters of a chat."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from outrider.gateway.api.anthropic.body import MessagesBody, read_messages
from outrider.gateway.api.openai.bodies import read_chat
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.api.schema.tools import NamedTool
from outrider.gateway.request.generation import Messages
from outrider.mesh.errors import InvalidRequest

SEAL = Seal()
TENANT = "acme"
HELLO: Any = [{"role": "user", "content": "hello"}]
LOOSE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
WEB = {"type": "web_search_20250305", "name": "web_search"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def read(**body: Any) -> tuple[MessagesBody, list[str]]:
    ignored: list[str] = []
    return read_messages(
        json.dumps({"model": "m", "max_tokens": 5, "messages": HELLO} | body).encode(), ignored
    ), ignored


def prompt(**body: Any) -> tuple[list[dict[str, Any]], Messages, list[str]]:
    """The chat's messages, its prompt, and the names without effect."""
    made, ignored = read(**body)
    chat = made.chat(SEAL, TENANT, ignored)
    chat.note_unenforced(ignored)
    rendered = chat.body.generation().prompt
    assert isinstance(rendered, Messages)
    return json.loads(rendered.json), rendered, ignored


def said(*turns: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    return prompt(messages=list(turns), **body)[0]


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}}


def test_a_turn_of_blocks_is_one_text() -> None:
    system = [text("be brief"), text("be kind")]
    assert said(user(text("a"), text("b")), system=system) == [
        {"role": "system", "content": "be brief\n\nbe kind"},
        {"role": "user", "content": "a\n\nb"},
    ]
    assert said({"role": "user", "content": "a"}, {"role": "user", "content": "b"}) == [
        {"role": "user", "content": "a\n\nb"}
    ]


def test_calls_and_their_results_are_those_of_a_chat() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "/x"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("no such"), text("file")]}
    messages = said(
        user(text("go")),
        {"role": "assistant", "content": [text("I look"), call]},
        user(text("and then"), result | {"is_error": True}),
    )
    assert messages[1:] == [
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "read", "arguments": '{"path":"/x"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: no such\n\nfile"},
        {"role": "user", "content": "and then"},
    ]


def test_a_turn_of_the_system_goes_where_templates_take_it() -> None:
    early, late = {"role": "system", "content": "it is noon"}, {"role": "system", "content": [text("it is one")]}
    answer = {"role": "assistant", "content": "b"}
    assert said(user(text("a")), early, answer, late, user(text("c")), system="s") == [
        {"role": "system", "content": "s\n\nit is noon"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "it is one\n\nc"},
    ]


def thinking(**members: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": ""} | members, text("b")]}


def test_thoughts_come_back_in_the_clear_and_sealed() -> None:
    sealed = SEAL.close("I wonder", TENANT)
    redacted = {"role": "assistant", "content": [{"type": "redacted_thinking", "data": sealed}, text("b")]}
    for turn in (thinking(thinking="I wonder", signature="x"), thinking(signature=sealed), redacted):
        messages, _, ignored = prompt(messages=[*HELLO, turn, *HELLO])
        assert (messages[1]["reasoning_content"], ignored) == ("I wonder", [])


def test_thoughts_that_another_server_sealed_are_left_out_and_named() -> None:
    changed = SEAL.close("I wonder", TENANT)[:-8] + "AAAAAAA="
    for signature in ("foreign", SEAL.close("I wonder", "another"), Seal().close("I wonder", TENANT), changed):
        messages, _, ignored = prompt(messages=[*HELLO, thinking(signature=signature), *HELLO])
        assert "reasoning_content" not in messages[1]
        assert ignored == ["messages[1].content[0].signature"]


def test_parameters_are_those_of_a_chat() -> None:
    made, ignored = read(
        system="s", stop_sequences=["x"], temperature=0.5, top_k=3, metadata={"user_id": "u"}, seed=4, stream=True
    )
    chat = read_chat(
        json.dumps(
            {
                "model": "m",
                "messages": [{"role": "system", "content": "s"}, *HELLO],
                "max_tokens": 5,
                "stop": ["x"],
                "temperature": 0.5,
                "top_k": 3,
                "user": "u",
                "seed": 4,
                "stream": True,
            }
        ).encode()
    )
    assert made.chat(SEAL, TENANT, ignored).body.generation() == chat.generation()
    assert ignored == []


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        ({"type": "auto"}, "auto", True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}, True),
    ],
)
def test_a_choice_of_tools_is_that_of_a_chat(choice: Any, wanted: Any, parallel: bool) -> None:
    body = read(tools=[{"name": "f", "input_schema": {}}], tool_choice=choice)[0].chat(SEAL, TENANT, []).body
    chosen = body.tool_choice if isinstance(wanted, str) else msgspec.convert(wanted, NamedTool)
    assert (body.tool_choice, body.parallel_tool_calls) == (chosen, parallel)


def test_tools_that_the_server_would_run_are_left_out_and_named() -> None:
    own = {"name": "f", "description": "d", "input_schema": LOOSE, "cache_control": {"type": "ephemeral"}}
    _, rendered, ignored = prompt(tools=[WEB, own | {"type": "custom"}])
    (function,) = [tool["function"] for tool in json.loads(rendered.tools)]
    assert function == {"name": "f", "description": "d", "parameters": LOOSE}
    assert ignored == ["tools[0].web_search_20250305", "tools[1].input_schema/properties/a/uniqueItems"]


def test_a_deferred_tool_is_offered_once_it_was_found_and_until_it_is_removed() -> None:
    tools = [{"name": "search"}, {"name": "f", "defer_loading": True}]
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "search", "input": {}}]}
    reference = {"type": "tool_reference", "tool_name": "f"}
    result = user({"type": "tool_result", "tool_use_id": "a", "content": [reference]})

    def offered(*turns: Any, more: Any = ()) -> tuple[str, ...]:
        rules = read(tools=[*tools, *more], messages=[*HELLO, *turns])[0].chat(SEAL, TENANT, []).body.call_rules
        assert rules is not None
        return rules.names

    def change(kind: str) -> Any:
        tool = {"type": "tool_reference", "name": "f"}
        return {"role": "system", "content": [{"type": f"tool_{kind}", "tool": tool}]}

    assert offered() == ("search",)
    assert offered(call, result) == offered(change("addition")) == ("search", "f")
    assert offered(call, result, change("removal")) == ("search",)
    assert offered(more=[{"type": "tool_search_tool_regex_20251119", "name": "s"}]) == ("search", "f")
    assert said(*HELLO, call, result)[-1]["content"] == "The tool f is there."


def test_a_form_of_the_answer_is_enforced() -> None:
    form = {"type": "json_schema", "schema": {"enum": ["yes", "no"]}}
    made, ignored = read(output_config={"format": form, "effort": "high"})
    structure = made.chat(SEAL, TENANT, ignored).body.generation().structure
    assert structure is not None
    assert json.loads(structure.grammar.json_schema) == form["schema"]
    assert ignored == ["output_config.effort"]


def test_whether_to_think_is_told_to_the_template() -> None:
    off, on = ({"enable_thinking": told, "thinking": told} for told in (False, True))
    assert json.loads(prompt(thinking={"type": "disabled"})[1].variables) == off
    assert json.loads(prompt(thinking={"type": "adaptive"})[1].variables) == on
    assert prompt()[1].variables == ""
    made, ignored = read(thinking={"type": "enabled", "budget_tokens": 2000})
    assert made.chat(SEAL, TENANT, ignored).body.generation().thought_budget == 2000
    assert ignored == []


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"messages": []}, "messages", "at least one turn"),
        ({"messages": "hello"}, "messages", "an array"),
        ({"messages": [{"role": "cook", "content": "a"}]}, "messages[0].role", "user, assistant or system"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "blocks of text and tool_result"),
        ({"messages": [user(IMAGE)]}, "messages[0].content[0].type", "no images"),
        (
            {"messages": [user({"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]})]},
            "messages[0].content[0].content[0].type",
            "no images",
        ),
        ({"messages": [user({"type": "tool_result"})]}, "messages[0].content[0]", "tool_use_id"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "The"}]}, "messages[1]", "the last one"),
        ({"system": [IMAGE]}, "system[0].type", "text blocks"),
        ({"tools": [{"input_schema": {}}]}, "tools[0]", "name"),
        ({"tools": [WEB, {"name": "f", "input_schema": {"type": 7}}]}, "tools[1].input_schema", "of the function f"),
        ({"tools": [WEB], "tool_choice": {"type": "any"}}, "tool_choice", "with tools"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type", '{"type": "any"}'),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": 7}}}},
            "output_config.format.schema",
            "",
        ),
        ({"stop_sequences": [""]}, "stop_sequences[0]", "1 to 1000"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"mcp_servers": [{"url": "http://localhost"}]}, "mcp_servers", "not supported"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type", "adaptive"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompt(**body)
    assert (caught.value.param or "").startswith(param)
    assert message in caught.value.message


def test_a_strict_gateway_refuses_what_has_no_effect() -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[0\].web_search_20250305 is not supported"):
        read(tools=[WEB])[0].chat(SEAL, TENANT, None)
