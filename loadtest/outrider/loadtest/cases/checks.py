"""What is wrong with an answer, by its case alone, and beside another answer to the same request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import jsonschema_rs
from outrider.loadtest.cases.bodies import NAMED, REGEX, SCHEMA, offered, stop_of
from outrider.loadtest.cases.features import Case
from outrider.loadtest.cases.views import Choice, View

_START, _END = "<think>", "</think>"
"""An answer has one thought, in front: a start mark inside that, and further marks behind it, are text."""
_END_TOKENS = 8
"""Most tokens of the end mark, and of the start mark where the answer has to write it."""


def violations(case: Case, answer: View) -> list[str]:
    """What is wrong with ``answer`` to the request of ``case``."""
    found = [*answer.faults, *_of_usage(case, answer)]
    if len(answer.choices) != int(case["n"]):
        found.append(f"{len(answer.choices)} choices")
    for choice in answer.choices:
        found += [*_of_thought(case, choice), *_of_calls(case, choice), *_of_text(case, choice)]
    return found


def differences(one: View, other: View) -> list[str]:
    """Names of what differs between two answers to the same request."""
    found = [name for name in ("prompt", "completion", "reasoning") if getattr(one, name) != getattr(other, name)]
    for mine, theirs in zip(one.choices, other.choices, strict=False):
        left, right = asdict(mine), asdict(theirs)
        found += [name for name in left if left[name] != right[name]]
    return found if len(one.choices) == len(other.choices) else [*found, "choices"]


def stops(case: Case, answer: View, twin: View) -> list[str]:
    """What is wrong with ``answer`` beside its ``twin``, whose request has no text that stops."""
    found, stop = [], stop_of(case)
    for choice, free in zip(answer.choices, twin.choices, strict=True):
        if choice.thought != free.thought:
            found.append("the text that stops changes the thought")
        text = free.text.partition(stop)[0]
        if case["tools"] == "none" and choice.text != text:
            found.append("the text does not end where it should")
        if case["tools"] == "none" and stop in free.text and choice.finish != "stop":
            found.append("a stopped answer has another finish reason")
        if not (free.text.startswith(choice.text) or choice.text.startswith(free.text)):
            found.append("the text that stops changes the text")
    return found


def _of_usage(case: Case, answer: View) -> Iterator[str]:
    tokens = sum(len(choice.tokens) for choice in answer.choices)
    most = int(case["n"]) * int(case["max_tokens"])
    if case["api"] != "messages" and answer.completion != tokens:
        yield f"{tokens} tokens came, {answer.completion} are counted"
    if answer.completion > most or not answer.prompt:
        yield f"{answer.completion} of {most} tokens are counted, {answer.prompt} of the prompt"
    if all(choice.finish == "length" for choice in answer.choices) and answer.completion != most:
        yield f"{answer.completion} of {most} tokens are counted in an answer that ends at its length"
    if answer.reasoning is None:
        return
    thought = any(choice.thought for choice in answer.choices)
    if answer.reasoning > answer.completion or (thought and not answer.reasoning):
        yield f"{answer.reasoning} of {answer.completion} tokens are counted as the thought's"
    if case["budget"] != "none" and answer.reasoning > int(case["n"]) * (int(case["budget"]) + 2 * _END_TOKENS):
        yield f"the thought has {answer.reasoning} tokens"


def _of_thought(case: Case, choice: Choice) -> Iterator[str]:
    if _END in choice.thought or choice.text.lstrip().startswith((_START, _END)):
        yield "a mark of thoughts is in a text"
    unsaid = case["thinking"] == "unsaid" and case["effort"] == "off"
    if (choice.thought or choice.sealed) and (case["thinking"] == "off" or unsaid):
        yield "there is a thought, which is off"
    if choice.thought != choice.thought.strip():
        yield "a thought has blanks around it"
    if case["thought"] == "hidden" and case["api"] != "responses" and choice.thought:
        yield "a thought is told, which is hidden"
    if case["api"] == "responses" and bool(choice.sealed) != (case["thought"] == "hidden" and bool(choice.thought)):
        yield "a thought is sealed, or is not"


def _of_calls(case: Case, choice: Choice) -> Iterator[str]:
    schemas, cut = offered(case), choice.finish != "tool_calls"
    for place, (name, arguments) in enumerate(choice.calls):
        if name not in schemas:
            yield f"a call of {name}"
        elif not (cut and place == len(choice.calls) - 1) and not _valid(schemas[name], arguments):
            yield f"a call of {name} with wrong arguments"
    if choice.calls and cut and choice.finish == "stop" and not stop_of(case):
        yield "calls end an answer that is not ended by them"
    if len(choice.calls) > (1 if case["parallel"] == "no" or case["tools"] == "named" else 16):
        yield f"{len(choice.calls)} calls"
    if case["tools"] in ("required", "named", "allowed") and choice.finish != "length" and not stop_of(case):
        names = {name for name, _ in choice.calls}
        if not names or choice.text or (case["tools"] == "named" and names != {NAMED}):
            yield "there is no call, which has to be"


def _of_text(case: Case, choice: Choice) -> Iterator[str]:
    stop = stop_of(case)
    if stop and stop in choice.text:
        yield "the text holds what stops it"
    has_tokens = bool(choice.tokens) or bool(choice.logprobs)
    if (
        case["api"] == "chat"
        and has_tokens
        and case["logprobs"] != "none"
        and len(choice.logprobs) != len(choice.tokens)
    ):
        yield f"{len(choice.logprobs)} log-probabilities of {len(choice.tokens)} tokens"
    if case["logprobs"] == "none" and choice.logprobs:
        yield "there are log-probabilities"
    if choice.finish not in ("stop", "tool_calls", "length"):
        yield f"the finish reason {choice.finish}"
    if choice.finish != "stop" or stop or case["tools"] in ("required", "named", "allowed") or choice.calls:
        return
    if case["structure"] == "schema" and not _valid(SCHEMA, choice.text):
        yield "the text is not of its schema"
    if case["structure"] == "object" and not _valid({"type": "object"}, choice.text):
        yield "the text is no JSON object"
    if case["structure"] == "regex" and not re.fullmatch(REGEX, choice.text):
        yield "the text does not match its expression"


def _valid(schema: dict[str, Any], text: str) -> bool:
    try:
        return jsonschema_rs.is_valid(schema, json.loads(text))
    except ValueError:
        return False
