"""A response does not depend on how frames divide its tokens, and its events make it up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from outrider.gateway.api.responses.body import read_response
from outrider.gateway.api.responses.stored_form import ResponseShape
from outrider.gateway.api.schema.thoughts import Seal
from outrider.gateway.ledger.record import Key, Record
from outrider.gateway.request.models import ServedModel
from outrider.gateway.stream.reassembly import split
from outrider.loadtest.cases.response_events import Fold
from outrider.wire.frames import Finish, Frame, Likelihood, Usage

CALL = ["<tool_call>\n", '{"name": "f", ', '"arguments": {"a": ', "1}}", "\n</tool_call>"]
CUT = ["\n<tool_call>\n", '{"name": "f"']
TEXTS = ["Well", ", ", "then"]
ANSWERS = {
    "text": ([], TEXTS, Finish.STOP),
    "thought": (["", "Hm", "", "."], TEXTS, Finish.STOP),
    "thought alone": (["", "Hm", "."], [], Finish.LENGTH),
    "call": ([], CALL, Finish.STOP),
    "text and calls": (["", "Hm"], [*TEXTS, "\n", *CALL, "\n", *CALL], Finish.STOP),
    "call that is cut": (["Hm"], CALL[:4], Finish.LENGTH),
    "second call that is cut": ([], [*CALL, *CUT], Finish.LENGTH),
    "first call that is cut": ([], [*TEXTS, *CUT], Finish.LENGTH),
}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
ASKED = {
    "input": "a",
    "tools": [TOOL],
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "store": False,
}


def frame(thought: list[str], texts: list[str], finish: str) -> Frame:
    every = [*thought, *texts]
    return Frame(
        "r",
        0,
        list(range(len(every))),
        every,
        [""] * len(every),
        finish,
        Usage(1, len(every), reasoning_tokens=len(thought)),
        likelihoods=[Likelihood(-float(place), text.encode(), []) for place, text in enumerate(every)],
        thought=len(thought),
    )


def divided(whole: Frame, size: int) -> list[Frame]:
    parts = []
    while len(whole.tokens) > size:
        part, whole = split(whole, size)
        parts.append(part)
    return [*parts, whole]


def told(frames: list[Frame], **more: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The output of a response, and what is wrong with its events."""
    shape = ResponseShape.of(read_response(msgspec.json.encode(ASKED | more)), [])
    record = Record(0, ServedModel("m", "v", 8), b"", b"", b"", 1, 1, False, b"")
    builder, fold = shape.builder(Key("t", "r"), record, Seal(bytes(64))), Fold()
    for event in [*builder.begin(), *(event for each in frames for event in builder.take(each))]:
        fold.take(msgspec.to_builtins(event))
    return msgspec.to_builtins(builder.response().output), fold.faults


@pytest.mark.parametrize("name", list(ANSWERS))
@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_a_response_is_the_same_however_its_tokens_come(name: str, size: int) -> None:
    whole = frame(*ANSWERS[name])
    output, faults = told(divided(whole, size))
    assert not faults
    assert output == told([whole])[0]


def test_a_thought_whose_first_tokens_have_no_text_comes_before_the_message() -> None:
    output, faults = told(divided(frame(*ANSWERS["thought"]), 1), tools=[])
    assert not faults
    assert [item["type"] for item in output] == ["reasoning", "message"]


def test_log_probabilities_are_those_of_the_tokens_of_text() -> None:
    output, _ = told([frame(*ANSWERS["text and calls"])])
    (message,) = (item for item in output if item["type"] == "message")
    assert message["content"][0]["text"] == "Well, then"
    assert [entry["token"] for entry in message["content"][0]["logprobs"]] == TEXTS


def test_all_calls_of_a_response_are_completed() -> None:
    output, _ = told([frame(*ANSWERS["text and calls"])])
    assert [item["status"] for item in output] == ["completed"] * 4
    output, _ = told([frame([], [*CALL, "\n", *CALL[:4]], Finish.LENGTH)])
    assert [item["status"] for item in output] == ["completed", "incomplete"]


def test_the_beginning_of_a_further_call_is_no_text() -> None:
    output, _ = told([frame(*ANSWERS["second call that is cut"])])
    assert [item["type"] for item in output] == ["function_call"]
    output, _ = told([frame(*ANSWERS["first call that is cut"])])
    assert output[-1]["content"][0]["text"] == "".join([*TEXTS, *CUT])
