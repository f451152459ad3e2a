"""The effect of every parameter of a generation: a value beside the default, and where the value shows.

A parameter is named by its path: ``stream_options.include_usage``, ``tools[].function.name``. `paths` lists those of a
body.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

REPOSITORY = Path(__file__).parents[2]
END = 0
"""The end-of-text id of the model that these parameters are tried with."""
INFILLING = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
"""Tokens with which that model fills in what lies before a suffix."""
EXTRA, VARIABLE = "<|endoftext|>", "shout"
"""The text that the model's tokenizer puts before texts, and a variable of the model's template."""


class Shows(Enum):
    """Where the effect of a parameter shows."""

    ANSWER = auto()
    """The answer differs, without what it repeats of the request."""
    REQUEST = auto()
    """The request that the engine takes differs: the parameter changes the speed, the order or the end of an answer."""
    REPEATED = auto()
    """The answer repeats the parameter, which is all that the parameter is for."""
    NOWHERE = auto()
    """The parameter is a label that a client has to give."""
    IGNORED = auto()
    """`outrider.ignored` of the answer names the parameter."""
    PLACE = auto()
    """Requests with one value are answered by one verifier, and requests with other values by others."""


@dataclass(frozen=True)
class Said:
    """What the answer without the parameter said: its tokens, their texts, and the id of the answer."""

    tokens: list[int]
    texts: list[str]
    id: str

    @property
    def word(self) -> str:
        """The text of a token in the middle of the answer; empty if none has a text that a client could write."""
        plain = (text for text in self.texts[2:] if text.isprintable() and text.isascii() and text.strip())
        return next(plain, "")


@dataclass(frozen=True)
class Effect:
    """What is tried: a ``value``, other parameters ``beside`` it with and without it, and what comes of that.

    Attributes:
        value: as it is, or made of what the model said.
        refused: status of the refusal with which the gateway answers; 0 if it answers.
        test: path and name of the test that shows the effect, where one request cannot.
    """

    value: Any = None
    beside: Any = field(default_factory=dict)
    shows: Shows = Shows.ANSWER
    refused: int = 0
    test: str = ""

    def bodies(self, name: str, base: dict[str, Any], said: Said) -> tuple[dict[str, Any], dict[str, Any]]:
        """The body without the parameter ``name``, and the body with it."""
        plain = base | _made(self.beside, said)
        changed = deepcopy(plain)
        _put(changed, name.split("."), _made(self.value, said))
        return plain, changed


def _made(value: Any, said: Said) -> Any:
    return value(said) if isinstance(value, Callable) else value  # type: ignore[arg-type]


def _put(body: Any, path: list[str], value: Any) -> None:
    key, rest = path[0], path[1:]
    if not rest:
        body[key] = value
    elif key.endswith("[]"):
        _put(body[key.removesuffix("[]")][0], rest, value)
    else:
        _put(body.setdefault(key, {}), rest, value)


def functions_of(path: str) -> set[str]:
    """Names of the functions of a file of the repository."""
    tree = ast.parse((REPOSITORY / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def paths(body: type[msgspec.Struct]) -> list[str]:
    """The paths of all parameters of ``body`` that have several values."""
    fields = inspect.type_info(body).fields  # type: ignore[attr-defined]
    return list(dict.fromkeys(path for each in fields for path in _paths(each.type, each.encode_name)))


def _paths(kind: inspect.Type, path: str) -> Iterator[str]:
    match kind:
        case inspect.Metadata(type=plain):
            yield from _paths(plain, path)
        case inspect.UnionType(types=types):
            several = [each for each in types if not isinstance(each, inspect.NoneType)]
            for each in several:
                yield from [path] if isinstance(each, inspect.LiteralType) and several[1:] else _paths(each, path)
        case inspect.ListType(item_type=inspect.StructType() as item):
            yield from _paths(item, f"{path}[]")
        case inspect.ListType(item_type=inspect.UnionType(types=types)) if all(
            isinstance(each, inspect.StructType) for each in types
        ):
            for each in types:
                yield from _paths(each, f"{path}[]")
        case inspect.StructType(fields=fields):
            for each in fields:
                yield from _paths(each.type, f"{path}.{each.encode_name}")
            if not fields:
                yield path
        case inspect.NoneType() | inspect.LiteralType(values=(_,)):
            return
        case _:
            yield path


LOOSE = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}, "uniqueItems": True}}}
"""A schema of which a part is not enforced."""
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
LOOSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": LOOSE}}
TOOLS = [{"type": "function", "function": {"name": each, "parameters": SCHEMA}} for each in ("f", "g")]
LOOSE_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": LOOSE}}]
F = {"type": "function", "function": {"name": "f"}}
CALLED = {"tools": TOOLS, "tool_choice": "required"}
TOOLS_ALLOWED = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
ALLOWED = {
    "tools": TOOLS,
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": TOOLS_ALLOWED[:1]}},
}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
THINKS = {"thinking": {"type": "enabled"}}
PARTS = {"type": "content", "content": [{"type": "text", "text": "a"}]}
HI = [{"role": "user", "content": "hi"}]

OBFUSCATED = Effect(
    True, test="tests/gateway/api/http/test_obfuscation.py::test_a_stream_says_the_same_in_cells_of_one_size"
)

REPEATING = {"temperature": 0.0, "ignore_eos": True}
"""What makes the model say a token again, for penalties to show."""
SHARED: dict[str, Effect] = {
    "model": Effect("absent", refused=404),
    "seed": Effect(4),
    "temperature": Effect(0.0),
    "top_p": Effect(1 / 128),
    "top_k": Effect(1),
    "min_p": Effect(1.0),
    "repetition_penalty": Effect(50.0),
    "frequency_penalty": Effect(2.0, beside=REPEATING),
    "presence_penalty": Effect(2.0, beside=REPEATING),
    "logit_bias": Effect(lambda said: {str(said.tokens[0]): -100}),
    "bad_words": Effect(lambda said: [said.word, [said.tokens[0]]]),
    "stop": Effect(lambda said: said.word),
    "stop_token_ids": Effect(lambda said: [said.tokens[2]]),
    "allowed_token_ids": Effect(lambda said: said.tokens[:1]),
    "repeat_last_n": Effect(0, {"repetition_penalty": 50.0}),
    "include_stop_str_in_output": Effect(True, lambda said: {"stop": said.word}),
    "skip_special_tokens": Effect(False, {"logit_bias": {str(END): 100}, "ignore_eos": True}),
    "min_tokens": Effect(8, lambda said: {"stop_token_ids": [said.tokens[2]]}),
    "ignore_eos": Effect(True, {"logit_bias": {str(END): 100}}),
    "structured_outputs.json": Effect(SCHEMA),
    "structured_outputs.json_object": Effect(True),
    "structured_outputs.regex": Effect("[ab]{3}"),
    "structured_outputs.choice": Effect(["yes", "no"]),
    "structured_outputs.grammar": Effect('start: "a" "b"'),
    "stream": Effect(True),
    "return_tokens": Effect(True),
    "return_drafts": Effect(True),
    "speculation": Effect("off", shows=Shows.REQUEST),
    "speculation.drafters": Effect(["ngram"], shows=Shows.REQUEST),
    "speculation.max_nodes": Effect(3, shows=Shows.REQUEST),
    "speculation.private": Effect(True, shows=Shows.REQUEST),
    "prediction.content": Effect("def g(", {"prediction": {"type": "content", "content": "a"}}, Shows.REQUEST),
    "prediction.content[].text": Effect("b", {"prediction": PARTS}, Shows.REQUEST),
    "priority": Effect(5, shows=Shows.REQUEST),
    "ttft_ms": Effect(600_000, shows=Shows.REQUEST),
    "timeout_ms": Effect(600_000, shows=Shows.REQUEST),
    "user": Effect("a", shows=Shows.PLACE),
    "prompt_cache_key": Effect("a", shows=Shows.PLACE),
    "cache_salt": Effect("a", shows=Shows.REQUEST),
    "coalesce": Effect(
        False,
        test="tests/gateway/stream/test_sharing.py::"
        "test_what_is_not_the_very_same_or_does_not_want_to_is_generated_by_itself",
    ),
}
"""Of completions, chats and responses."""

OPENAI: dict[str, Effect] = SHARED | {
    "max_tokens": Effect(5),
    "max_completion_tokens": Effect(5, {"max_tokens": None}),
    "n": Effect(2),
    "prompt_logprobs": Effect(1),
    "timings_per_token": Effect(True),
    "stream_options.include_usage": Effect(True, {"stream": True}),
    "stream_options.continuous_usage_stats": Effect(True, STREAMED),
    "stream_options.include_obfuscation": OBFUSCATED,
    "response_format": Effect({"type": "json_object"}),
    "response_format.schema": Effect(SCHEMA, {"response_format": {"type": "json_object"}}),
    "response_format.json_schema.schema": Effect({"type": "integer"}, {"response_format": FORMAT}),
    "response_format.json_schema.strict": Effect(True, {"response_format": LOOSE_FORMAT}, refused=400),
    "response_format.json_schema.name": Effect("b", {"response_format": FORMAT}, Shows.NOWHERE),
    "response_format.json_schema.description": Effect("b", {"response_format": FORMAT}, Shows.IGNORED),
    "grammar": Effect('root ::= "a" "b"'),
    "json_schema": Effect(SCHEMA),
    "guided_json": Effect(SCHEMA),
    "guided_regex": Effect("[ab]{3}"),
    "guided_choice": Effect(["yes", "no"]),
    "guided_grammar": Effect('start: "a" "b"'),
    "truncate_prompt_tokens": Effect(2),
    "return_token_ids": Effect(True),
}
"""Of completions and chats."""

COMPLETION: dict[str, Effect] = OPENAI | {
    "prompt": Effect("class A"),
    "logprobs": Effect(2),
    "echo": Effect(True),
    "suffix": Effect("return"),
    "best_of": Effect(4),
    "add_special_tokens": Effect(False),
    "parse_special_tokens": Effect(False, {"prompt": f"a{EXTRA}b"}),
}

CHAT: dict[str, Effect] = OPENAI | {
    "response_format.schema": Effect(SCHEMA, {"response_format": {"type": "json_object"}, "enable_thinking": False}),
    "response_format.json_schema.schema": Effect(
        {"type": "integer"}, {"response_format": FORMAT, "enable_thinking": False}
    ),
    "messages": Effect(HI),
    "logprobs": Effect(True),
    "top_logprobs": Effect(2, {"logprobs": True}),
    "tools[].function.name": Effect("h", {"tools": TOOLS[:1], "tool_choice": "required", "enable_thinking": False}),
    "tools[].function.description": Effect("b", {"tools": TOOLS}),
    "tools[].function.parameters": Effect({"type": "object"}, CALLED),
    "tools[].function.strict": Effect(True, {"tools": LOOSE_TOOLS}, refused=400),
    "tool_choice": Effect("required", {"tools": TOOLS}),
    "tool_choice.function.name": Effect(
        "g",
        {"tools": TOOLS, "enable_thinking": False, "tool_choice": {"type": "function", "function": {"name": "f"}}},
    ),
    "tool_choice.type": Effect("allowed_tools", {"tools": TOOLS, "tool_choice": F}, refused=400),
    "tool_choice.allowed_tools.mode": Effect("required", ALLOWED),
    "tool_choice.allowed_tools.tools": Effect(TOOLS_ALLOWED[1:], ALLOWED, Shows.REQUEST),
    "parallel_tool_calls": Effect(False, CALLED, Shows.REQUEST),
    "chat_template_kwargs": Effect({VARIABLE: True}),
    "chat_template": Effect("{{ messages[0].content }}"),
    "documents": Effect([{"title": "a", "text": "b"}]),
    "add_generation_prompt": Effect(False),
    "continue_final_message": Effect(True),
    "reasoning_effort": Effect("low"),
    "enable_thinking": Effect(True),
    "thinking.type": Effect("disabled", THINKS),
    "thinking.budget_tokens": Effect(4, THINKS),
    "thinking_token_budget": Effect(4, {"enable_thinking": True}),
    "include_reasoning": Effect(False, {"enable_thinking": True, "thinking_token_budget": 4}),
}


def _flat(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "function"} | tool["function"] for tool in tools]


def _spaced(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "namespace", "name": "a", "description": "b", "tools": _flat(tools)}]


SPACED_CALLED = {"tools": _spaced(TOOLS), "tool_choice": "required"}
FLAT_CALLED = {"tools": _flat(TOOLS), "tool_choice": "required"}
NO_THOUGHT = {"chat_template_kwargs": {"enable_thinking": False}}
FLAT_F = {"tool_choice": {"type": "function", "name": "f"}} | NO_THOUGHT
FLAT_ALLOWED = {
    "tools": _flat(TOOLS),
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": _flat(TOOLS_ALLOWED[:1])},
}
LOGPROBS = "message.output_text.logprobs"
TEXT = {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}}
LOOSE_TEXT = {"text": {"format": {"type": "json_schema", "name": "a", "schema": LOOSE}}}

RESPONSE: dict[str, Effect] = SHARED | {
    "input": Effect("hi"),
    "instructions": Effect("be brief"),
    "previous_response_id": Effect(lambda said: said.id),
    "max_output_tokens": Effect(5),
    "stream_options.include_obfuscation": OBFUSCATED,
    "include": Effect([LOGPROBS]),
    "top_logprobs": Effect(2, {"include": [LOGPROBS]}),
    "text.format": Effect({"type": "json_object"}),
    "text.format.schema": Effect({"type": "integer"}, TEXT | NO_THOUGHT),
    "text.format.strict": Effect(True, LOOSE_TEXT, refused=400),
    "text.format.name": Effect("b", TEXT, Shows.REPEATED),
    "text.format.description": Effect("b", TEXT, Shows.REPEATED),
    "text.verbosity": Effect("low", shows=Shows.IGNORED),
    "tools[].name": Effect("h", {"tools": _flat(TOOLS[:1]), "tool_choice": "required"} | NO_THOUGHT),
    "tools[].description": Effect("b", {"tools": _flat(TOOLS)}),
    "tools[].parameters": Effect({"type": "object"}, FLAT_CALLED),
    "tools[].strict": Effect(True, {"tools": _flat(LOOSE_TOOLS)}, refused=400),
    "tools[].tools[].name": Effect(
        "h", {"tools": _spaced(TOOLS[:1]), "tool_choice": "required", "max_output_tokens": 48} | NO_THOUGHT
    ),
    "tools[].tools[].description": Effect("b", {"tools": _spaced(TOOLS)}),
    "tools[].tools[].parameters": Effect({"type": "object"}, SPACED_CALLED),
    "tools[].tools[].strict": Effect(True, {"tools": _spaced(LOOSE_TOOLS)}, refused=400),
    "tool_choice": Effect("required", {"tools": _flat(TOOLS)}),
    "tool_choice.namespace": Effect("a", {"tools": _flat(TOOLS[:1]) + _spaced(TOOLS)} | FLAT_F),
    "tool_choice.name": Effect("g", {"tools": _flat(TOOLS)} | FLAT_F),
    "tool_choice.mode": Effect("required", FLAT_ALLOWED),
    "tool_choice.tools": Effect(_flat(TOOLS_ALLOWED[1:]), FLAT_ALLOWED, Shows.REQUEST),
    "parallel_tool_calls": Effect(False, FLAT_CALLED, Shows.REQUEST),
    "chat_template_kwargs": Effect({VARIABLE: True}),
    "reasoning.effort": Effect("low"),
    "reasoning.summary": Effect("auto", shows=Shows.IGNORED),
    "metadata": Effect({"a": "b"}, shows=Shows.REPEATED),
    "truncation": Effect(
        test="tests/gateway/api/responses/test_truncation.py::"
        "test_a_conversation_that_is_too_long_is_answered_without_its_beginning",
    ),
    "background": Effect(True),
    "store": Effect(
        False,
        test="tests/gateway/api/responses/test_response_requests.py::"
        "test_what_is_not_stored_or_no_response_is_not_found",
    ),
}

TESTS = "tests/gateway/api/nats/test_nats.py::"
NATS: dict[str, Effect] = {
    "request_id": Effect(test=f"{TESTS}test_who_subscribes_and_then_asks_gets_every_token_that_the_other_apis_send"),
    "timeout_s": Effect(test=f"{TESTS}test_what_takes_longer_than_it_may_is_ended_for_all_readers"),
}
"""Of requests over NATS alone."""

GRPC: dict[str, Effect] = {
    "linger": Effect(
        test="tests/gateway/api/grpc/test_grpc.py::test_what_cannot_be_in_time_is_refused_at_once_unless_it_lingers"
    )
}
"""Of requests over gRPC alone."""
