"""Chunks of a chat become the blocks of a message, of which clients make what the whole answer has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from outrider.gateway.api.anthropic.blocks import BlockEvents, Thoughts, blocks, end, usage
from outrider.gateway.api.anthropic.json_types import Message, MessageChange, MessageStart, MessageUsage
from outrider.gateway.api.openai.json_types import AssistantMessage, Delta
from outrider.gateway.api.schema.tools import CalledFunction, ToolCall
from outrider.wire.frames import Finish, Frame, Usage

THOUGHTS = Thoughts(lambda thought: f"sealed {thought}")
OMITTED = Thoughts(THOUGHTS.seal, omitted=True)
LAST = Frame("r", 0, [1], ["x"], [""], Finish.STOP, Usage(10, 5, 4))


def call(place: int, arguments: str, name: str = "") -> Delta:
    """A chunk of a call; the first one has its name."""
    function = CalledFunction(arguments, name) if name else CalledFunction(arguments)
    named: Any = {"id": f"call_r_0_{place}", "type": "function"} if name else {}
    return Delta(tool_calls=[ToolCall(function, index=place, **named)])


def accumulated(events: list[Any]) -> list[dict[str, Any]]:
    """What Anthropic's own package makes of ``events``."""
    start = Message(id="msg_r", model="m", content=[], usage=MessageUsage(1, 0))
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in [MessageStart(start), *events, MessageChange(end("stop", LAST), usage(LAST))]:
        told: Any = msgspec.to_builtins(event)
        snapshot = accumulate_event(event=told, current_snapshot=snapshot, json_bufs=buffers)
    return [block.to_dict(exclude_none=True) for block in snapshot.content]


def streamed(thoughts: Thoughts, *chunks: tuple[Delta, str]) -> list[Any]:
    reading = BlockEvents(thoughts)
    return [*(event for delta, thought in chunks for event in reading.take(delta, thought)), *reading.end()]


@pytest.mark.parametrize("thoughts", [THOUGHTS, OMITTED])
def test_a_thought_a_text_and_calls_are_the_same_streamed_and_whole(thoughts: Thoughts) -> None:
    events = streamed(
        thoughts,
        (Delta(role="assistant", content=""), ""),
        (Delta(), "I wo"),
        (Delta(), "nder"),
        (Delta(content="So"), ""),
        (Delta(content=" be it"), ""),
        (call(0, "", "f"), ""),
        (call(0, '{"a": '), ""),
        (call(0, "1}"), ""),
        (call(1, "{}", "g"), ""),
    )
    functions = [CalledFunction('{"a": 1}', "f"), CalledFunction("{}", "g")]
    calls = [ToolCall(each, f"call_r_0_{place}", "function") for place, each in enumerate(functions)]
    whole = blocks(AssistantMessage("So be it", tool_calls=calls), thoughts, "I wonder")
    assert accumulated(events) == [_shown(block) for block in whole]
    assert [_shown(block) for block in whole] == [
        {"type": "thinking", "thinking": "" if thoughts.omitted else "I wonder", "signature": "sealed I wonder"},
        {"type": "text", "text": "So be it"},
        {"type": "tool_use", "id": "toolu_r_0_0", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_r_0_1", "name": "g", "input": {}},
    ]
    places = [event.index for event in events]
    assert places == sorted(places)


def _shown(block: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(block).items() if value is not None}


def test_every_block_begins_once_and_ends_before_the_next() -> None:
    events = streamed(THOUGHTS, (Delta(content="a"), ""), (call(0, "{}", "f"), ""), (call(1, "{}", "f"), ""))
    kinds = [(event.index, event.__struct_config__.tag.removeprefix("content_block_")) for event in events]
    assert kinds == [(place, kind) for place in range(3) for kind in ("start", "delta", "stop")]


def test_a_call_that_was_cut_off_is_told_without_input() -> None:
    cut = AssistantMessage(None, tool_calls=[ToolCall(CalledFunction('{"a": ', "f"), "call_r_0_0", "function")])
    assert [_shown(block)["input"] for block in blocks(cut, THOUGHTS)] == [{}]


def test_an_answer_without_anything_has_no_blocks() -> None:
    assert streamed(THOUGHTS, (Delta(role="assistant", content=""), "")) == blocks(AssistantMessage(""), THOUGHTS) == []


@pytest.mark.parametrize(
    ("finish", "stop", "wanted"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("length", None, ("max_tokens", None)),
        ("tool_calls", None, ("tool_use", None)),
        ("content_filter", None, ("refusal", None)),
    ],
)
def test_the_reason_of_the_end_is_told(finish: Any, stop: str | None, wanted: tuple[str, str | None]) -> None:
    made = end(finish, msgspec.structs.replace(LAST, stop=stop))
    assert (made.stop_reason, made.stop_sequence) == wanted


def test_cached_tokens_are_not_counted_twice() -> None:
    assert usage(LAST) == MessageUsage(6, 5, 4)
