"""The bodies of Ollama's API, and the chats and completions that they ask for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody
from outrider.gateway.api.schema import unsupported
from outrider.gateway.api.schema.generation import AnswerBody
from outrider.gateway.api.schema.parameters import ANY, UNBOUNDED, UnsupportedParameters, convert, read
from outrider.gateway.api.schema.structure import JsonObjectFormat, JsonSchemaFormat, NamedSchema
from outrider.gateway.api.schema.tools import Tool
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Flag

_LATEST = ":latest"
_IDLE: dict[str, tuple[Any, ...]] = {"keep_alive": ()}
_HOW = dict.fromkeys(("num_batch", "num_gpu", "num_thread", "use_mmap"), ANY)
OPTIONS = msgspec.structs.replace(unsupported.CHAT, idle={**unsupported.CHAT.idle, **_HOW})
CHAT = UnsupportedParameters(idle=_IDLE)
GENERATE = UnsupportedParameters(altering={"images": ([],), "template": ("",), "context": ([],)}, idle=_IDLE)
EMBED = UnsupportedParameters(altering={"truncate": (True, False)}, idle=_IDLE | {"options": ({},)})


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
        options = read(self.options, AnswerBody, OPTIONS, names)
        if ignored is not None:
            ignored += [f"options.{name}" for name in names or ()]
        form: JsonObjectFormat | JsonSchemaFormat | None = JsonObjectFormat() if self.format else None
        if isinstance(self.format, dict):
            form = JsonSchemaFormat(NamedSchema("answer", self.format))
        return options.asked | {"model": named(self.model), "stream": self.stream, "response_format": form}

    def _chat(self, messages: list[dict[str, Any]], ignored: list[str] | None, **more: Any) -> ChatBody:
        return ChatBody(
            messages=messages,
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
    """Body of ``POST /api/generate``: a chat of one message, or a completion if it is ``raw`` or has a ``suffix``."""

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: Flag = False

    @property
    def empty(self) -> bool:
        """Whether there is no prompt."""
        return not self.prompt and not self.suffix

    def openai(self, ignored: list[str] | None) -> ChatBody | CompletionBody:
        """The chat or the completion."""
        if self.raw and self.system:
            raise InvalidRequest("system must be absent with raw, which takes the prompt as it is", param="system")
        if self.raw or self.suffix:
            if ignored is not None and self.system:
                ignored.append("system")
            asked = self._shared(ignored)
            asked["max_tokens"] = asked["max_tokens"] or UNBOUNDED
            return CompletionBody(prompt=self.prompt, suffix=self.suffix or None, **asked)
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
