"""What an answer says, whatever its API and however it came: whole, or put together from a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from outrider.loadtest.cases.response_events import Fold

_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


@dataclass
class Choice:
    """One of an answer's choices; ``calls`` are names and arguments, ``sealed`` is the thought as only the mesh reads
    it, ``finish`` is in the words of chats."""

    thought: str = ""
    sealed: str = ""
    text: str = ""
    calls: list[list[str]] = field(default_factory=list)
    finish: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)


@dataclass
class View:
    """An answer. ``faults`` tell what a reader of its API would stumble over."""

    choices: list[Choice] = field(default_factory=list)
    prompt: int = 0
    completion: int = 0
    reasoning: int | None = None
    faults: list[str] = field(default_factory=list)


def view(api: str, answer: dict[str, Any]) -> View:
    """The view of an answer that came whole."""
    return {"chat": _chat, "responses": _response, "messages": _message}[api](answer)


def streamed_view(api: str, events: Iterable[dict[str, Any]]) -> View:
    """The view of an answer that came in ``events``; raises `KeyError` or `IndexError` where one has a wrong place."""
    return {"chat": _chat_stream, "responses": _response_stream, "messages": _message_stream}[api](list(events))


def _chat(answer: dict[str, Any]) -> View:
    made, extra = _with_usage(View(), answer["usage"]), answer["outrider"]
    for choice, more in zip(answer["choices"], extra.get("choices", [extra]), strict=True):
        message = choice["message"]
        calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]
        logprobs = (choice["logprobs"] or {}).get("content", [])
        thought = message.get("reasoning_content", "")
        if thought != message.get("reasoning", ""):
            made.faults.append("reasoning and reasoning_content differ")
        text, finish = message["content"] or "", choice["finish_reason"]
        made.choices.append(Choice(thought, "", text, calls, finish, more.get("tokens", []), logprobs))
    return made


def _with_usage(made: View, usage: dict[str, Any]) -> View:
    made.prompt, made.completion = usage["prompt_tokens"], usage["completion_tokens"]
    made.reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    if usage["total_tokens"] != made.prompt + made.completion:
        made.faults.append("the total of the usage is no sum")
    return made


def _chat_stream(events: list[dict[str, Any]]) -> View:
    made = _with_usage(View(), events[-1]["usage"])
    count = 1 + max(choice["index"] for event in events for choice in event["choices"])
    made.choices = [Choice() for _ in range(count)]
    if len({event["id"] for event in events}) != 1:
        made.faults.append("chunks have several ids")
    for event in events:
        for chunk in event["choices"]:
            choice = made.choices[chunk["index"]]
            if choice.finish:
                made.faults.append("a choice goes on behind its finish reason")
            _add_delta(made, choice, chunk["delta"])
            choice.tokens += event.get("outrider", {}).get("tokens", [])
            choice.logprobs += (chunk["logprobs"] or {}).get("content", [])
            choice.finish = chunk["finish_reason"] or choice.finish
    return made


def _add_delta(made: View, choice: Choice, delta: dict[str, Any]) -> None:
    thought, text = delta.get("reasoning_content", ""), delta.get("content") or ""
    if thought != delta.get("reasoning", "") or (thought and (choice.text or choice.calls)):
        made.faults.append("a thought stands behind the answer, or under one name only")
    if text.strip() and choice.calls:
        made.faults.append("text stands behind calls")
    choice.thought += thought
    choice.text += text
    for call in delta.get("tool_calls", []):
        if "id" in call:
            choice.calls.append([call["function"]["name"], ""])
        if call["index"] != len(choice.calls) - 1:
            made.faults.append("calls are not in order")
        choice.calls[call["index"]][1] += call["function"]["arguments"]


def _response(answer: dict[str, Any]) -> View:
    made, choice, usage = View(), Choice(), answer["usage"]
    made.prompt, made.completion = usage["input_tokens"], usage["output_tokens"]
    made.reasoning = usage["output_tokens_details"]["reasoning_tokens"]
    if usage["total_tokens"] != made.prompt + made.completion:
        made.faults.append("the total of the usage is no sum")
    for item in answer["output"]:
        _add_item(made, choice, item)
    whole = answer["status"] == "completed"
    choice.finish = ("tool_calls" if choice.calls else "stop") if whole else "length"
    choice.tokens = answer["outrider"].get("tokens", [])
    made.choices = [choice]
    return made


def _add_item(made: View, choice: Choice, item: dict[str, Any]) -> None:
    if item["type"] == "reasoning":
        choice.thought = "".join(part["text"] for part in item["content"])
        choice.sealed = item.get("encrypted_content", "")
    elif item["type"] == "message":
        choice.text += "".join(part["text"] for part in item["content"])
        choice.logprobs += [entry for part in item["content"] for entry in part["logprobs"]]
    else:
        choice.calls.append([item["name"], item["arguments"]])
        if item["status"] == "completed" and not _is_object(item["arguments"]):
            made.faults.append("a call that is cut off says that it is completed")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _response_stream(events: list[dict[str, Any]]) -> View:
    fold = Fold()
    for event in events:
        fold.take(event)
    made = _response(events[-1]["response"])
    made.faults += fold.faults
    return made


def _message(answer: dict[str, Any]) -> View:
    made, choice, usage = View(), Choice(), answer["usage"]
    made.prompt, made.completion = usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]
    for block in answer["content"]:
        if block["type"] == "thinking":
            choice.thought, choice.sealed = block["thinking"], block["signature"]
        elif block["type"] == "text":
            choice.text += block["text"]
        else:
            choice.calls.append([block["name"], json.dumps(block["input"])])
    choice.finish = _FINISH[answer["stop_reason"]]
    made.choices = [choice]
    return made


def _message_stream(events: list[dict[str, Any]]) -> View:
    """Puts the message together as Anthropic's clients do; a call that was cut off has no input."""
    message: dict[str, Any] = {}
    faults, is_open = [], False
    for event in events:
        kind, blocks = event["type"], message.get("content", [])
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            faults += ["a block begins inside another one"] if is_open or event["index"] != len(blocks) else []
            is_open = True
            blocks.append(event["content_block"] | ({"json": ""} if "input" in event["content_block"] else {}))
        elif kind == "content_block_delta":
            faults += [] if is_open and event["index"] == len(blocks) - 1 else ["a delta belongs to no open block"]
            name = event["delta"]["type"].removesuffix("_delta")
            place = {"text": "text", "thinking": "thinking", "signature": "signature"}.get(name, "json")
            blocks[event["index"]][place] += event["delta"].get(place, event["delta"].get("partial_json", ""))
        elif kind == "content_block_stop":
            is_open = False
        elif kind == "message_delta":
            message |= event["delta"] | {"usage": event["usage"]}
    for block in message["content"]:
        if "json" in block:
            block["input"] = json.loads(block["json"]) if _is_object(block["json"]) else {}
    made = _message(message)
    made.faults += faults + ([] if events[-1]["type"] == "message_stop" and not is_open else ["no end of the message"])
    return made
