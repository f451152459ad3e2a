"""The bodies of Ollama's API, and the chats and completions that they ask for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody
from outrider.gateway.api.schema.parameters import UnsupportedParameters, convert, read
from outrider.gateway.api.schema.structure import JsonObjectFormat, JsonSchemaFormat, NamedSchema, StructuredOutputs
from outrider.gateway.api.schema.tools import Tool
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Flag, numbers, numbers_above
from outrider.wire.sampling import Seed

_LATEST = ":latest"
_IDLE: dict[str, tuple[Any, ...]] = {"keep_alive": ()}
OPTIONS = UnsupportedParameters(idle=dict.fromkeys(("num_ctx", "num_batch", "num_gpu", "num_thread", "num_keep"), ()))
CHAT = UnsupportedParameters(idle=_IDLE)
GENERATE = UnsupportedParameters(
    altering={"images": ([],), "suffix": ("",), "template": ("",), "context": ([],)}, idle=_IDLE
)
EMBED = UnsupportedParameters(altering={"truncate": (True, False)}, idle=_IDLE | {"options": ({},)})
_FIELDS = ("temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty")


class Options(msgspec.Struct, frozen=True):
    """``options``; a negative ``num_predict`` leaves the length to the model and its context."""

    num_predict: int | None = None
    temperature: Annotated[float, numbers(0, 100)] | None = None
    top_p: Annotated[float, numbers_above(0, 1)] | None = None
    top_k: Annotated[int, Meta(ge=0, description="an integer of at least 0 (0 keeps all)")] | None = None
    min_p: Annotated[float, numbers(0, 1)] | None = None
    seed: Seed | None = None
    stop: str | tuple[str, ...] = ()
    repeat_penalty: Annotated[float, numbers_above(0, 100)] | None = None
    frequency_penalty: Annotated[float, numbers(-2, 2)] = 0.0
    presence_penalty: Annotated[float, numbers(-2, 2)] = 0.0

    def parameters(self) -> dict[str, Any]:
        """The parameters of a chat or a completion."""
        given = {name: getattr(self, name) for name in _FIELDS}
        most = self.num_predict
        if most == 0:
            raise InvalidRequest("options.num_predict must be at least 1, or below 0 for any length", param="options")
        return given | {
            "max_tokens": None if most is None or most < 0 else most,
            "repetition_penalty": self.repeat_penalty,
            "stop": self.stop,
        }


class Message(msgspec.Struct, frozen=True):
    """A message of a chat."""

    role: str
    content: str = ""
    thinking: str = ""
    images: Annotated[list[Any], Meta(max_length=0, description="absent: images are not supported")] = []
    tool_calls: list[dict[str, Any]] = []
    tool_name: str = ""
    tool_call_id: str = ""


_MESSAGES = Annotated[list[dict[str, Any]], Meta(description="an array of messages with a role and a content")]
_FORMAT = Annotated[Literal["", "json"] | dict[str, Any], Meta(description='"json" or a JSON Schema')]
_THINK = Annotated[bool | Literal["low", "medium", "high"], Meta(description='true, false, "low", "medium" or "high"')]


class GenerationBody(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that ``/api/chat`` and ``/api/generate`` share."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")]
    options: dict[str, Any] = {}
    format: _FORMAT = ""
    stream: Flag = True
    think: _THINK | None = None

    @property
    def empty(self) -> bool:
        """Whether only the model's presence is asked for."""
        raise NotImplementedError

    def openai(self, ignored: list[str] | None) -> ChatBody | CompletionBody:
        """The chat or the completion that this asks for; ``ignored`` is as in `read`. Raises `InvalidRequest`."""
        raise NotImplementedError

    def _shared(self, ignored: list[str] | None) -> dict[str, Any]:
        names: list[str] | None = None if ignored is None else []
        options = read(self.options, Options, OPTIONS, names)
        if ignored is not None:
            ignored += [f"options.{name}" for name in names or ()]
        return options.parameters() | {"model": named(self.model), "stream": self.stream}

    def _chat(self, messages: list[dict[str, Any]], ignored: list[str] | None, **more: Any) -> ChatBody:
        form: JsonObjectFormat | JsonSchemaFormat | None = None
        if self.format:
            schema = self.format if isinstance(self.format, dict) else None
            form = JsonObjectFormat() if schema is None else JsonSchemaFormat(NamedSchema("answer", schema))
        return ChatBody(
            messages=messages,
            response_format=form,
            enable_thinking=None if self.think is None else bool(self.think),
            reasoning_effort=self.think if isinstance(self.think, str) else None,
            **self._shared(ignored),
            **more,
        )


class ChatRequest(GenerationBody, frozen=True, kw_only=True):
    """Body of ``POST /api/chat``."""

    messages: _MESSAGES = []
    tools: Annotated[list[dict[str, Any]], Meta(max_length=128, description="an array of functions")] = []

    @property
    def empty(self) -> bool:
        """Whether there is no message."""
        return not self.messages

    def openai(self, ignored: list[str] | None) -> ChatBody:
        """The chat."""
        messages = [_message(message, f"messages[{place}]") for place, message in enumerate(self.messages)]
        tools: list[Tool] = [convert(f"tools[{place}]", tool, Tool) for place, tool in enumerate(self.tools)]
        return self._chat(messages, ignored, tools=tools)


class GenerateRequest(GenerationBody, frozen=True, kw_only=True):
    """Body of ``POST /api/generate``: a chat of one message, or a completion if it is ``raw``."""

    prompt: str = ""
    system: str = ""
    raw: Flag = False

    @property
    def empty(self) -> bool:
        """Whether there is no prompt."""
        return not self.prompt

    def openai(self, ignored: list[str] | None) -> ChatBody | CompletionBody:
        """The chat or the completion."""
        if self.raw:
            form = None
            if self.format:
                schema = self.format if isinstance(self.format, dict) else None
                form = StructuredOutputs(json_object=True) if schema is None else StructuredOutputs(json=schema)
            return CompletionBody(prompt=self.prompt, structured_outputs=form, **self._shared(ignored))
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self._chat([*system, {"role": "user", "content": self.prompt}], ignored)


class EmbedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /api/embed``."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")]
    input: Annotated[str | list[str], Meta(description="a string or an array of strings")]
    dimensions: Annotated[int, Meta(ge=0, description="an integer of at least 0 (0 tells all)")] = 0


class OldEmbedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /api/embeddings``, which `EmbedRequest` replaces."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")]
    prompt: str


class ShowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /api/show``; ``name`` is its earlier name of the model."""

    model: str = ""
    name: str = ""
    verbose: Flag = False


def named(model: str) -> str:
    """The name of a model without Ollama's tag for its usual version."""
    return model.removesuffix(_LATEST)


def _message(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """A message of Ollama's as one of OpenAI's; raises `InvalidRequest`, which calls it ``name``."""
    given = {key: value for key, value in raw.items() if value is not None}
    message: Message = convert(name, given, Message)
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.thinking:
        made["reasoning_content"] = message.thinking
    if message.tool_calls:
        made["tool_calls"] = [_call(call, f"{name}.tool_calls[{at}]") for at, call in enumerate(message.tool_calls)]
    if message.role == "tool":
        made |= {"tool_call_id": message.tool_call_id or "call_0"}
        made |= {"name": message.tool_name} if message.tool_name else {}
    return made


class _Called(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] = {}


def _call(raw: dict[str, Any], name: str) -> dict[str, Any]:
    function: _Called = convert(f"{name}.function", raw.get("function"), _Called)
    arguments = msgspec.json.encode(function.arguments).decode()
    called = {"name": function.name, "arguments": arguments}
    return {"id": str(raw.get("id") or "call_0"), "type": "function", "function": called}
