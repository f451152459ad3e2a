"""The body of each case, for its API."""

from __future__ import annotations

from typing import Any

from outrider.loadtest.cases.features import Case

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"type": "string", "maxLength": 12}, "code": {"type": "integer", "maximum": 999}},
    "required": ["colour", "code"],
    "additionalProperties": False,
}
REGEX = "(yes|no), [a-z]{2,9}\\."
FUNCTIONS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 16}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": ["string", "null"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "clock": {"type": "object", "properties": {}, "additionalProperties": False},
}
"""Functions that are offered, with the schemas of their arguments."""
NAMED, ALLOWED = "add", ("weather", "clock")
STOPS = {"line": "\n", "bracket": ">", "word": "the"}
"""Texts that stop: the bracket stands in the marks of thoughts and of calls as well."""
_QUESTIONS = (
    "Which colour is a ripe tomato?",
    "What is the weather in Paris, and what is 17 + 25?",
    "Write a Python function that adds two numbers.",
    "What time is it? Tell me the weather in Oslo, too.",
    "Name the largest planet.",
)
_EARLIER = ("What is the weather in Rome?", "The user wants the weather.", '{"city": "Rome", "unit": "c"}', "18, sunny")


def body(case: Case, number: int) -> dict[str, Any]:
    """The body of case ``number``, which has one answer: seeded, and without a shared generation."""
    made = {"chat": _chat, "responses": _response, "messages": _message}[case["api"]](case, number)
    made |= {"temperature": float(case["temperature"]), "seed": number, "coalesce": False, "return_tokens": True}
    if case["structure"] == "regex":
        made["structured_outputs"] = {"regex": REGEX}
    return made


def offered(case: Case) -> dict[str, dict[str, Any]]:
    """The functions that an answer may call, with the schemas of their arguments."""
    names = {"none": (), "named": (NAMED,), "allowed": ALLOWED}.get(case["tools"], tuple(FUNCTIONS))
    return {name: FUNCTIONS[name] for name in names}


def stop_of(case: Case) -> str:
    """The text that stops the answer; empty without one."""
    return STOPS.get(case["stop"], "")


def _question(number: int) -> str:
    return _QUESTIONS[number % len(_QUESTIONS)]


def _chat(case: Case, number: int) -> dict[str, Any]:
    asked, thought, arguments, result = _EARLIER
    call = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    earlier: list[dict[str, Any]] = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": result},
        {"role": "assistant", "content": "18 degrees."},
    ]
    made: dict[str, Any] = {
        "messages": [*(earlier if case["history"] == "calls" else []), {"role": "user", "content": _question(number)}],
        "max_tokens": int(case["max_tokens"]),
        "n": int(case["n"]),
        "include_reasoning": case["thought"] == "shown",
    }
    if case["thinking"] != "unsaid":
        made["enable_thinking"] = case["thinking"] == "on"
    if case["budget"] != "none":
        made["thinking_token_budget"] = int(case["budget"])
    if case["effort"] != "none":
        made["reasoning_effort"] = {"low": "low", "off": "none"}[case["effort"]]
    if case["logprobs"] != "none":
        made |= {"logprobs": True, "top_logprobs": 2}
    if stop_of(case):
        made["stop"] = stop_of(case)
    if case["structure"] in ("schema", "object"):
        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
        made["response_format"] = schema if case["structure"] == "schema" else {"type": "json_object"}
    return made | _chat_tools(case)


def _chat_tools(case: Case) -> dict[str, Any]:
    if case["tools"] == "none":
        return {}
    named = {name: {"type": "function", "function": {"name": name}} for name in FUNCTIONS}
    allowed = {"mode": "required", "tools": [named[name] for name in ALLOWED]}
    choices = {"named": named[NAMED], "allowed": {"type": "allowed_tools", "allowed_tools": allowed}}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in FUNCTIONS.items()
    ]
    return {
        "tools": tools,
        "tool_choice": choices.get(case["tools"], case["tools"]),
        "parallel_tool_calls": case["parallel"] == "yes",
    }


def _response(case: Case, number: int) -> dict[str, Any]:
    asked, thought, arguments, result = _EARLIER
    earlier: list[dict[str, Any]] = [
        {"role": "user", "content": asked},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]},
        {"type": "function_call", "call_id": "a1b2c3d4e", "name": "weather", "arguments": arguments},
        {"type": "function_call_output", "call_id": "a1b2c3d4e", "output": result},
        {"role": "assistant", "content": "18 degrees."},
    ]
    include = ["message.output_text.logprobs"] if case["logprobs"] != "none" else []
    made: dict[str, Any] = {
        "input": [*(earlier if case["history"] == "calls" else []), {"role": "user", "content": _question(number)}],
        "max_output_tokens": int(case["max_tokens"]),
        "include": [*include, *(["reasoning.encrypted_content"] if case["thought"] == "hidden" else [])],
    }
    if include:
        made["top_logprobs"] = 2
    if case["thinking"] != "unsaid":
        made["chat_template_kwargs"] = {"enable_thinking": case["thinking"] == "on"}
    if case["effort"] != "none":
        made["reasoning"] = {"effort": {"low": "low", "off": "none"}[case["effort"]]}
    if stop_of(case):
        made["stop"] = stop_of(case)
    if case["structure"] in ("schema", "object"):
        schema = {"type": "json_schema", "name": "a", "schema": SCHEMA}
        made["text"] = {"format": schema if case["structure"] == "schema" else {"type": "json_object"}}
    if case["tools"] != "none":
        named = {name: {"type": "function", "name": name} for name in FUNCTIONS}
        allowed = {"type": "allowed_tools", "mode": "required", "tools": [named[name] for name in ALLOWED]}
        made["tools"] = [{**named[name], "parameters": schema} for name, schema in FUNCTIONS.items()]
        made["tool_choice"] = {"named": named[NAMED], "allowed": allowed}.get(case["tools"], case["tools"])
        made["parallel_tool_calls"] = case["parallel"] == "yes"
    return made


def _message(case: Case, number: int) -> dict[str, Any]:
    asked, thought, _, result = _EARLIER
    use = {"type": "tool_use", "id": "a1b2c3d4e", "name": "weather", "input": {"city": "Rome", "unit": "c"}}
    earlier: list[dict[str, Any]] = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": thought, "signature": ""}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a1b2c3d4e", "content": result}]},
        {"role": "assistant", "content": "18 degrees."},
    ]
    made: dict[str, Any] = {
        "messages": [*(earlier if case["history"] == "calls" else []), {"role": "user", "content": _question(number)}],
        "max_tokens": int(case["max_tokens"]),
    }
    if case["thinking"] != "unsaid":
        thinking: dict[str, Any] = {"type": "enabled" if case["thinking"] == "on" else "disabled"}
        thinking |= {"display": "omitted"} if case["thought"] == "hidden" else {}
        made["thinking"] = thinking | ({} if case["budget"] == "none" else {"budget_tokens": int(case["budget"])})
    if stop_of(case):
        made["stop_sequences"] = [stop_of(case)]
    if case["structure"] == "schema":
        made["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
    if case["tools"] != "none":
        kind = {"auto": "auto", "required": "any", "named": "tool"}[case["tools"]]
        choice = {"type": kind, "disable_parallel_tool_use": case["parallel"] == "no"}
        made["tools"] = [{"name": name, "input_schema": schema} for name, schema in FUNCTIONS.items()]
        made["tool_choice"] = choice | ({"name": NAMED} if kind == "tool" else {})
    return made
