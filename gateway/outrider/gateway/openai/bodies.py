"""The bodies of OpenAI's requests: which parameters are honoured, and what they may hold."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from outrider.gateway.deadlines import Deadlines
from outrider.gateway.openai.parameters import ANY, read
from outrider.gateway.openai.prompts import chat, prompt
from outrider.gateway.openai.structure import ResponseFormat, StructuredOutputs, structure
from outrider.gateway.openai.tools import Calling, Tool, ToolChoice, calling
from outrider.gateway.request import Generation, Prompt, Sampling, Speculation
from outrider.mesh.errors import InvalidRequest

_INT32 = (1 << 31) - 1
_SEED_BITS = 53  # a returned seed survives clients whose numbers are doubles
_COMPLETION_TOKENS = 16  # OpenAI's default

_Count = Annotated[int, Meta(ge=1, le=_INT32, description="an integer of at least 1")]
_Flag = Annotated[bool, Meta(description="true or false")]
TokenId = Annotated[int, Meta(ge=0, le=_INT32)]
_StopString = Annotated[str, Meta(min_length=1, max_length=1000)]


_Penalty = Annotated[float, Meta(ge=-2, le=2, description="a number from -2 to 2")]
_Word = Annotated[str, Meta(min_length=1, max_length=1000)] | Annotated[list[TokenId], Meta(min_length=1)]


DAY_MS = 86_400_000
_Milliseconds = Annotated[int, Meta(ge=1, le=DAY_MS, description=f"an integer from 1 to {DAY_MS}")]
_Name = Annotated[str, Meta(max_length=1024, description="a string of up to 1024 characters")]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``stream_options``."""

    include_usage: bool = False


class Guessing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``speculation`` as an object."""

    drafters: Annotated[list[str], Meta(max_length=16)] = []
    max_nodes: Annotated[int, Meta(ge=1, le=63)] | None = None


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What completions and chats have in common."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=100, description="a number from 0 to 100")] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1, description="a number above 0 and at most 1")] | None = None
    top_k: Annotated[int, Meta(ge=0, le=_INT32, description="an integer of at least 0 (0 keeps all)")] = 0
    min_p: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] = 0.0
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1, description="an integer of 64 bits")] | None = None
    stop: Annotated[
        _StopString | Annotated[list[_StopString], Meta(max_length=16)],
        Meta(description="a string or an array of up to 16 strings, each of 1 to 1000 characters"),
    ] = []
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64, description="an array of up to 64 token ids")] = []
    n: Annotated[int, Meta(ge=1, le=128, description="an integer from 1 to 128")] = 1
    repetition_penalty: Annotated[float, Meta(gt=0, le=100, description="a number above 0 and at most 100")] = 1.0
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    logit_bias: Annotated[
        dict[str, Annotated[float, Meta(ge=-100, le=100)]],
        Meta(max_length=1024, description="an object of up to 1024 token ids with numbers from -100 to 100"),
    ] = {}
    bad_words: Annotated[
        list[_Word], Meta(max_length=512, description="an array of up to 512 strings or arrays of token ids")
    ] = []
    response_format: ResponseFormat | None = None
    structured_outputs: (
        Annotated[
            StructuredOutputs, Meta(description="an object with one of json, json_object, regex, choice and grammar")
        ]
        | None
    ) = None
    min_tokens: Annotated[int, Meta(ge=0, le=_INT32, description="an integer of at least 0")] = 0
    stream: _Flag = False
    stream_options: Annotated[StreamOptions, Meta(description='an object like {"include_usage": true}')] | None = None
    ignore_eos: _Flag = False
    speculation: Annotated[
        Literal["off"] | Guessing,
        Meta(description='"off", or an object with "drafters" (names) and "max_nodes" (1 to 63)'),
    ] = Guessing()
    return_tokens: _Flag = False
    priority: Annotated[int, Meta(ge=-1000, le=1000, description="an integer from -1000 to 1000, lower ones first")] = 0
    ttft_ms: _Milliseconds | None = None
    timeout_ms: _Milliseconds | None = None
    coalesce: _Flag = True
    user: _Name | None = None
    prompt_cache_key: _Name | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk about its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def generation(self) -> Generation:
        """What is asked for, free of OpenAI's forms."""
        return Generation(
            model=self.model,
            prompt=self._prompt(),
            sampling=self._sampling(),
            speculation=self._speculation(),
            max_tokens=self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens,
            choices=self.n,
            priority=-self.priority,
            deadlines=Deadlines.within(self.ttft_ms, self.timeout_ms),
            coalesce=self.coalesce and (self.seed is not None or self.temperature == 0),
            session=self.prompt_cache_key or self.user or "",
        )

    def _prompt(self) -> Prompt:
        raise NotImplementedError

    def _sampling(self) -> Sampling:
        return Sampling(
            seed=secrets.randbits(_SEED_BITS) if self.seed is None else self.seed,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            repetition_penalty=self.repetition_penalty,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            logit_bias={_token_id(name): bias for name, bias in self.logit_bias.items()},
            bad_words=tuple(self.bad_words),
            min_tokens=self.min_tokens,
            structure=structure(self.response_format, self.structured_outputs),
        )

    def _speculation(self) -> Speculation:
        if not isinstance(self.speculation, Guessing):
            return Speculation(off=True)
        return Speculation(drafters=tuple(self.speculation.drafters), max_nodes=self.speculation.max_nodes or 0)


class CompletionBody(Body, frozen=True, kw_only=True):
    """Body of ``POST /v1/completions``."""

    prompt: Annotated[str | list[Any], Meta(description="a string, an array with one string, or an array of token ids")]
    max_tokens: Annotated[int, Meta(ge=0, le=_INT32, description="an integer of at least 1 (0 with echo)")] | None = (
        None
    )
    logprobs: Annotated[int, Meta(ge=0, le=20, description="an integer from 0 to 20")] | None = None
    echo: _Flag = False

    def _prompt(self) -> Prompt:
        return prompt(self.prompt)

    def _sampling(self) -> Sampling:
        return msgspec.structs.replace(super()._sampling(), logprobs=self.logprobs, echo=self.echo)

    def generation(self) -> Generation:
        """As any other, with OpenAI's default length."""
        asked = super().generation()
        return asked if asked.max_tokens is not None else msgspec.structs.replace(asked, max_tokens=_COMPLETION_TOKENS)


class ChatBody(Body, frozen=True, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: Annotated[
        list[dict[str, Any]], Meta(min_length=1, description="an array of messages with a role and a content")
    ]
    logprobs: _Flag = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20, description="an integer from 0 to 20")] = 0
    tools: Annotated[
        list[Tool], Meta(max_length=128, description='an array of objects like {"type": "function", "function": {...}}')
    ] = []
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: _Flag = True

    @property
    def calling(self) -> Calling | None:
        """What has to be called, if anything."""
        return calling(self.tools, self.tool_choice, self.parallel_tool_calls)

    def _prompt(self) -> Prompt:
        shown = self.tools if self.calling is not None else []
        tools = msgspec.json.encode([_without_none(tool) for tool in shown]).decode() if shown else ""
        return msgspec.structs.replace(chat(self.messages), tools=tools)

    def _sampling(self) -> Sampling:
        asked = msgspec.structs.replace(super()._sampling(), logprobs=self.top_logprobs if self.logprobs else None)
        if self.calling is None:
            return asked
        if asked.structure is not None:
            param = asked.structure.param.partition(".")[0]
            raise InvalidRequest(f"{param} may not be given where a function has to be called", param=param)
        return msgspec.structs.replace(asked, structure=self.calling.structure)


_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "metadata": ANY,
    "safety_identifier": ANY,
    "store": (False,),
    "service_tier": ("auto", "default"),
}
_NEUTRAL_COMPLETION = _NEUTRAL | {"best_of": (1,), "suffix": ("",)}
_NEUTRAL_CHAT = _NEUTRAL | {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": ({},),
    "prediction": ({},),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": ({},),
}


_B = TypeVar("_B", bound=Body)


def read_completion(body: bytes) -> CompletionBody:
    """The body of a completion; `InvalidRequest` says what is wrong with it."""
    asked = _consistent(read(body, CompletionBody, _NEUTRAL_COMPLETION))
    if asked.max_tokens == 0 and not asked.echo:
        raise InvalidRequest("max_tokens must be an integer of at least 1 (0 with echo), not 0", param="max_tokens")
    return asked


def read_chat(body: bytes) -> ChatBody:
    """The body of a chat completion; `InvalidRequest` says what is wrong with it."""
    asked = _consistent(read(body, ChatBody, _NEUTRAL_CHAT))
    if asked.top_logprobs and not asked.logprobs:
        raise InvalidRequest("top_logprobs may only be given where logprobs is true", param="top_logprobs")
    return asked


def _consistent(body: _B) -> _B:
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options may only be given where stream is true", param="stream_options")
    if None not in (body.max_tokens, body.max_completion_tokens) and body.max_tokens != body.max_completion_tokens:
        raise InvalidRequest("max_tokens and max_completion_tokens differ: give one of them", param="max_tokens")
    return body


def _token_id(name: str) -> int:
    if not name.isdecimal() or int(name) > _INT32:
        raise InvalidRequest(f"logit_bias.{name}: {name!r} is no token id", param=f"logit_bias.{name}")
    return int(name)


def _without_none(tool: Tool) -> dict[str, Any]:
    """A tool as a template expects it, without what the client did not say."""
    said = {key: value for key, value in msgspec.structs.asdict(tool.function).items() if value is not None}
    return {"type": tool.type, "function": said}
