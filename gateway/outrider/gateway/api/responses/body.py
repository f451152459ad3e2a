"""The body of ``POST /v1/responses``: the supported parameters, and their bounds."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.responses.items import Message, joined_lead
from outrider.gateway.api.responses.tools import (
    AllowedFunctions,
    FunctionTool,
    NamedFunction,
    NamespaceTool,
    chat_tools,
    known_tools,
)
from outrider.gateway.api.schema.generation import GenerationBody
from outrider.gateway.api.schema.ignored import note_part
from outrider.gateway.api.schema.json_schemas import note_unenforced
from outrider.gateway.api.schema.parameters import read, read_object
from outrider.gateway.api.schema.prompts import TemplateKwargs
from outrider.gateway.api.schema.structure import (
    JsonObjectFormat,
    NamedSchema,
    TextFormat,
    merged_structure,
)
from outrider.gateway.api.schema.thinking import Effort, template_variables
from outrider.gateway.api.schema.tools import Tool, read_call_rules, template_tools
from outrider.gateway.api.schema.unsupported import RESPONSE
from outrider.gateway.request.generation import CallRules, Generation, Messages, Structure
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Count, Flag
from outrider.wire.sampling import Logprobs

LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
_INCLUDED = (LOGPROBS, SEALED)
_Includable = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class JsonSchemaText(NamedSchema, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    """``{"type": "json_schema", "name": ..., "schema": {...}}``."""


class TextConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``text``: the format of the answer's text."""

    format: TextFormat | JsonObjectFormat | JsonSchemaText | None = None
    verbosity: Literal["low", "medium", "high"] | None = None

    def structure(self) -> Structure | None:
        """The structure that the format asks for; None for any text."""
        if isinstance(self.format, JsonObjectFormat):
            return self.format.structure("text.format")
        if isinstance(self.format, JsonSchemaText):
            return self.format.structure("text.format.schema")
        return None


class ReasoningConfig(msgspec.Struct, frozen=True):
    """``reasoning``: how much the model thinks, if its template reads that."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseStreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``stream_options``."""

    include_obfuscation: bool = False


class ResponseBody(GenerationBody, frozen=True, kw_only=True, dict=True):
    """Body of ``POST /v1/responses``."""

    input: Annotated[
        str | Annotated[list[dict[str, Any]], Meta(min_length=1)],
        Meta(description="a string, or an array of at least one item"),
    ]
    instructions: Annotated[str, Meta(description="a string")] | None = None
    previous_response_id: Annotated[str, Meta(description="the id of a response that is stored")] | None = None
    max_output_tokens: Count | None = None
    top_logprobs: Logprobs = 0
    include: Annotated[list[_Includable], Meta(description=f'an array that may hold "{LOGPROBS}" and "{SEALED}"')] = (
        msgspec.field(default_factory=list)
    )
    text: Annotated[
        TextConfig, Meta(description='an object like {"format": {"type": "json_schema", "name": ..., "schema": {...}}}')
    ] = TextConfig()
    tools: Annotated[
        list[FunctionTool | NamespaceTool],
        Meta(max_length=128, description='an array like [{"type": "function", "name": ...}]'),
    ] = msgspec.field(default_factory=list)
    tool_choice: (
        Annotated[
            Literal["none", "auto", "required"] | NamedFunction | AllowedFunctions,
            Meta(
                description='"auto", "none", "required", {"type": "function", "name": ...}, '
                'or {"type": "allowed_tools", "mode": ..., "tools": [...]}'
            ),
        ]
        | None
    ) = None
    parallel_tool_calls: Flag = True
    metadata: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
        Meta(max_length=16, description="an object of up to 16 strings, each of up to 512 characters"),
    ] = msgspec.field(default_factory=dict)
    stream_options: (
        Annotated[ResponseStreamOptions, Meta(description='an object like {"include_obfuscation": true}')] | None
    ) = None
    truncation: Annotated[Literal["auto", "disabled"], Meta(description='"auto" or "disabled"')] = "disabled"
    store: Flag = True
    background: Flag = False
    chat_template_kwargs: TemplateKwargs | None = None
    reasoning: Annotated[ReasoningConfig, Meta(description='an object like {"effort": "low"}')] | None = None

    @property
    def obfuscated(self) -> bool:
        """Whether the sizes and times of a stream's events may not depend on its text."""
        return self.stream_options is not None and self.stream_options.include_obfuscation

    @property
    def call_rules(self) -> CallRules | None:
        """The rules for calls; None if no function may be called."""
        named = self.tool_choice
        choice = named if isinstance(named, str | None) else named.chosen
        return read_call_rules(self._tools, choice, self.parallel_tool_calls, "parameters")

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions that may be called."""
        return () if self.call_rules is None else self.call_rules.names

    @property
    def bare(self) -> bool:
        """Whether calls without the format's marks are read as calls."""
        return self.call_rules is not None and self.call_rules.bare(self.text.structure())

    def generation(self, messages: list[Message]) -> Generation:
        """The generation that the body asks for, after the conversation ``messages``."""
        effort = None if self.reasoning is None else self.reasoning.effort
        given = template_variables(self.chat_template_kwargs, effort, None)
        variables = msgspec.json.encode(given).decode() if given else ""
        system = [{"role": "system", "content": self.instructions}] if self.instructions is not None else []
        rules = self.call_rules
        tools = template_tools(self._tools) if rules is not None else ""
        prompt = Messages(msgspec.json.encode(joined_lead(system + messages)).decode(), tools, variables=variables)
        logprobs = self.top_logprobs if LOGPROBS in self.include else None
        made = self._generation(prompt, self._structure, rules, max_tokens=self.max_output_tokens, logprobs=logprobs)
        return msgspec.structs.replace(made, splits=True)

    @cached_property
    def _structure(self) -> Structure | None:
        return merged_structure(self.text.structure(), "text.format", self)

    @cached_property
    def _tools(self) -> list[Tool]:
        return chat_tools(self.tools)


def read_response(body: bytes, ignored: list[str] | None = None) -> ResponseBody:
    """The body of a response, read as `read` does; raises `InvalidRequest`."""
    response_body = read(_with_known_tools(body, ignored), ResponseBody, RESPONSE, ignored)
    for name in response_body.include:
        if name not in _INCLUDED:
            note_part(f"include/{name}", "", ignored)
    if response_body.reasoning is not None and response_body.reasoning.summary is not None:
        note_part("reasoning.summary", "", ignored)
    if response_body.text.verbosity not in (None, "medium"):
        note_part("text.verbosity", '"medium"', ignored)
    if response_body.top_logprobs and LOGPROBS not in response_body.include:
        raise InvalidRequest(f"top_logprobs may only be given where include has {LOGPROBS}", param="top_logprobs")
    if response_body.stream_options is not None and not response_body.stream:
        raise InvalidRequest("stream_options may only be given where stream is true", param="stream_options")
    if response_body.background and not response_body.store:
        raise InvalidRequest("a background response has to be stored: store must be true", param="background")
    note_unenforced(response_body.unenforced, ignored)
    return response_body


def _with_known_tools(body: bytes, ignored: list[str] | None) -> bytes | dict[str, Any]:
    if b'"tools"' not in body:
        return body
    raw = read_object(body)
    return raw | {"tools": known_tools(raw["tools"], ignored)} if "tools" in raw else raw
