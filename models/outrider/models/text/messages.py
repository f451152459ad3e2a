"""Converts messages of OpenAI's API to the form that chat templates expect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def template_messages(messages: Sequence[Mapping[str, Any]], *, nulls: bool) -> list[Mapping[str, Any]]:
    """``messages`` with arguments of calls as objects and, unless ``nulls``, an empty text in place of a null content.

    OpenAI's API has arguments as JSON in a string, and a null content in a message of calls; Hugging Face's templates
    expect objects (https://huggingface.co/docs/transformers/chat_extras).
    """
    return [_template_message(message, nulls) for message in messages]


def _template_message(message: Mapping[str, Any], nulls: bool) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    if not nulls and "content" in message and message["content"] is None:
        changes["content"] = ""
    if isinstance(calls := message.get("tool_calls"), list):
        changes["tool_calls"] = [_call(call) for call in calls]
    return {**message, **changes}


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(arguments := function.get("arguments"), str):
        return call
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": parsed}} if isinstance(parsed, dict) else call
