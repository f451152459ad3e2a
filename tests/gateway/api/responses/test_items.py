"""Items of coding agents: thoughts, namespaces and tools of other kinds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from outrider.gateway.api.responses import events as event_types
from outrider.gateway.api.responses.body import ResponseBody, read_response
from outrider.gateway.api.responses.items import Thoughts, answer_messages, messages
from outrider.gateway.api.responses.output import Output
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.request.generation import Messages
from outrider.gateway.tool_calls.answer_reader import AnswerReader
from outrider.mesh.errors import ConfigError, InvalidRequest
from outrider.wire.calls import CallStyle
from outrider.wire.frames import Finish, Frame, Usage

SEAL = Seal()
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "done"}
SPAWN = {"type": "function", "name": "spawn", "description": "d", "parameters": {"type": "object"}}
AGENTS = {"type": "namespace", "name": "agents", "description": "b", "tools": [SPAWN]}


def said(*items: Any, ignored: list[str] | None = None) -> list[dict[str, Any]]:
    return messages(list(items), Thoughts(SEAL, "t", [] if ignored is None else ignored))


def read(ignored: list[str] | None = None, **body: Any) -> ResponseBody:
    return read_response(json.dumps({"input": "a"} | body).encode(), [] if ignored is None else ignored)


def reasoning(**members: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "it wondered"}]} | members


@pytest.mark.parametrize(
    "members",
    [
        {"content": [{"type": "reasoning_text", "text": "I wonder"}]},
        {"content": [{"type": "text", "text": "I wonder"}], "encrypted_content": "foreign"},
        {"content": None, "encrypted_content": SEAL.close("I wonder", "t")},
    ],
)
def test_a_thought_goes_into_the_message_behind_it(members: dict[str, Any]) -> None:
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]}
    ignored: list[str] = []
    for item in (answer, CALL):
        (message,) = said(reasoning(**members), item, ignored=ignored)
        assert message["reasoning_content"] == "I wonder"
    assert ignored == []


def test_a_thought_of_another_server_is_named_and_no_message() -> None:
    ignored: list[str] = []
    made = said(
        reasoning(encrypted_content="gAAAA"),
        CALL,
        RESULT,
        reasoning(),
        {"role": "user", "content": "a"},
        ignored=ignored,
    )
    assert [message["role"] for message in made] == ["assistant", "tool", "user"]
    assert ignored == ["input[0].encrypted_content"]
    with pytest.raises(InvalidRequest, match=r"input\[0\].encrypted_content is not supported"):
        messages([reasoning(encrypted_content="gAAAA")], Thoughts(SEAL, "t", None))


def test_what_other_servers_did_is_named_and_left_out() -> None:
    ignored: list[str] = []
    assert said({"type": "web_search_call", "status": "completed"}, CALL, ignored=ignored) == said(CALL)
    assert ignored == ["input[0].web_search_call"]


def test_tools_of_other_kinds_are_named_and_left_out_wherever_they_are() -> None:
    ignored: list[str] = []
    custom = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}}
    body = read(
        ignored,
        tools=[
            {"type": "web_search", "external_web_access": False},
            AGENTS | {"tools": [custom, SPAWN | {"defer_loading": True}]},
            {"type": "local_shell"},
            {"type": "mcp", "server_label": "a"},
            {"type": "function", "name": "f", "output_schema": {}},
        ],
    )
    assert body.functions == ("agents__spawn", "f")
    assert ignored == [
        "tools[0].web_search",
        "tools[1].tools[0].custom",
        "tools[1].tools[1].defer_loading",
        "tools[2].local_shell",
        "tools[3].mcp",
        "tools[4].output_schema",
    ]
    with pytest.raises(InvalidRequest, match=r"tools\[0\].web_search is not supported: leave it out"):
        read_response(b'{"input": "a", "tools": [{"type": "web_search"}]}')


def test_no_tool_at_all_is_a_response_without_calls() -> None:
    ignored: list[str] = []
    body = read(ignored, tools=[AGENTS | {"tools": []}, {"type": "web_search"}], tool_choice="auto")
    assert (body.call_rules, ignored) == (None, ["tools[1].web_search"])


def test_what_is_included_has_effect_or_is_named() -> None:
    ignored: list[str] = []
    read(ignored, include=["reasoning.encrypted_content", "web_search_call.results"])
    assert ignored == ["include/web_search_call.results"]


def test_instructions_and_messages_of_developers_are_one_message() -> None:
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "b"}]}
    later = {"role": "developer", "content": "d"}
    conversation = said(developer, {"role": "user", "content": "c"}, later)
    prompt = read(instructions="a").generation(conversation).prompt
    assert isinstance(prompt, Messages)
    assert json.loads(prompt.json) == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "c"},
        {"role": "developer", "content": "d"},
    ]


def test_a_function_of_a_namespace_is_called_by_both_names() -> None:
    body = read(tools=[AGENTS], tool_choice={"type": "function", "name": "spawn", "namespace": "agents"})
    (rules,) = [body.call_rules]
    assert rules is not None
    assert (rules.names, rules.may_talk) == (("agents__spawn",), False)
    text = '<tool_call>\n{"name": "agents__spawn", "arguments": {}}\n</tool_call>'
    output = Output("r", AnswerReader(CallStyle(), rules.names), {"agents__spawn": "agents"})
    [*output.take(Frame("r", 0, [1], [text], [""], Finish.STOP))]
    (item,) = output.items("completed")
    named = msgspec.to_builtins(item)
    assert (named["name"], named["namespace"]) == ("spawn", "agents")
    back = named | {"caller": {"type": "direct"}}
    assert said(back) == answer_messages([item])
    assert said(back)[0]["tool_calls"][0]["function"]["name"] == "agents__spawn"


def events(output: Output, *parts: tuple[str, str]) -> list[Any]:
    """The events of frames with a thought, whose tokens are not in the frame, and a text each."""
    told: list[Any] = []
    for place, (thought, text) in enumerate(parts):
        last = place == len(parts) - 1
        behind = ([1], [text], [""]) if text else ([], [], [])
        frame = Frame("r", place, *behind, Finish.STOP if last else None, Usage(1, 2) if last else None)
        told += output.take(frame, thought=thought)
    return [*told, *output.end("completed")]


def test_a_thought_is_an_item_before_the_message() -> None:
    output = Output("r", None, seal=lambda thought: f"sealed {thought}")
    told = events(output, ("I wo", ""), ("nder", ""), ("", "So"), ("", " be it"))
    kinds = [event.__struct_config__.tag.removeprefix("response.") for event in told]
    assert kinds == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    done = [event for event in told if isinstance(event, event_types.ItemDone)]
    assert [event.item for event in done] == output.items("completed")
    assert [event.output_index for event in done] == [0, 1]
    thought, _ = output.items("completed")
    assert msgspec.to_builtins(thought) == {
        "type": "reasoning",
        "id": "rs_r",
        "content": [{"type": "reasoning_text", "text": "I wonder"}],
        "status": "completed",
        "encrypted_content": "sealed I wonder",
        "summary": [],
    }
    assert answer_messages(output.items("completed")) == [
        {"role": "assistant", "content": "So be it", "reasoning_content": "I wonder"}
    ]


def test_a_thought_that_was_cut_off_is_the_last_item() -> None:
    output = Output("r", None)
    told: list[Any] = [*output.take(Frame("r", 0, [], [], []), thought="I wo"), *output.end("incomplete")]
    assert told[-1].item == output.items("incomplete")[0]
    assert msgspec.to_builtins(told[-1].item)["status"] == "incomplete"


def test_a_key_is_shared_by_a_file(tmp_path: Any) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(range(64)))
    one, other = Seal.with_file(str(path)), Seal.with_file(str(path))
    assert other.open(one.close("é", "t"), "t") == "é"
    assert one.close("é", "t") == other.close("é", "t")
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes; a key has 64"):
        Seal.with_file(str(path))
    with pytest.raises(ConfigError, match="thought_key_file"):
        Seal.with_file(str(tmp_path / "none"))
