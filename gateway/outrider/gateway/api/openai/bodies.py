"""The bodies of OpenAI's completions and chats: the supported parameters, and their bounds."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta
from outrider.gateway.api.openai.answers import Shape
from outrider.gateway.api.openai.prompt_logprobs import Wanted
from outrider.gateway.api.schema.generation import AnswerBody
from outrider.gateway.api.schema.ignored import note_part, shown_names
from outrider.gateway.api.schema.json_schemas import note_unenforced
from outrider.gateway.api.schema.parameters import UNBOUNDED, read
from outrider.gateway.api.schema.prompts import MOST_PROMPTS, PROMPTS, TemplateKwargs, chat, prompts
from outrider.gateway.api.schema.structure import (
    STRUCTURES,
    JsonSchemaFormat,
    ResponseFormat,
    format_structure,
    merged_structure,
)
from outrider.gateway.api.schema.thinking import Effort, Thinking, ThoughtBudget, template_variables
from outrider.gateway.api.schema.tools import Tool, ToolChoice, read_call_rules, template_tools
from outrider.gateway.api.schema.unsupported import CHAT, COMPLETION
from outrider.gateway.request.generation import CallRules, Generation, Prompt, Structure, Tokens, choice_seed
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Count, Flag, integers
from outrider.wire.sampling import Length, Logprobs

MOST_CHOICES = MOST_PROMPTS
"""Most answers to one request, over all its prompts."""
THINKING = 'an object like {"type": "enabled", "budget_tokens": 1024}, or {"type": "disabled"}'
_COMPLETION_TOKENS = 16  # OpenAI's default


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``stream_options``; ``continuous_usage_stats`` is vLLM's, and has an effect only with ``include_usage``."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class Body(AnswerBody, frozen=True, kw_only=True, dict=True):
    """The parameters that completions and chats share."""

    max_completion_tokens: Count | None = None
    n: Annotated[int, integers(1, MOST_CHOICES)] = 1
    prompt_logprobs: Logprobs | None = None
    timings_per_token: Flag = False
    response_format: ResponseFormat | None = None
    stream_options: Annotated[StreamOptions, Meta(description='an object like {"include_usage": true}')] | None = None
    return_token_ids: Flag = False

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk about its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def continuous_usage(self) -> bool:
        """Whether each chunk of such a stream holds the usage so far."""
        return self.include_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def _most_tokens(self) -> int | None:
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return None if most == UNBOUNDED else most

    def _shape(self, shape: Shape) -> Shape:
        """``shape`` with what completions and chats add to it alike."""
        prompt = None if self.prompt_logprobs is None else self._wanted
        return msgspec.structs.replace(
            shape,
            continuous_usage=self.continuous_usage,
            obfuscated=self.stream_options is not None and self.stream_options.include_obfuscation,
            timed=self.timings_per_token,
            prompt=prompt,
            token_ids=self.return_token_ids,
        )

    @property
    def _wanted(self) -> Wanted:
        return Wanted(self.prompt_logprobs, None)

    @cached_property
    def _structure(self) -> Structure | None:
        if all(getattr(self, name) is None for name in STRUCTURES):
            return None
        return merged_structure(format_structure(self.response_format), "response_format", self)


class CompletionBody(Body, frozen=True, kw_only=True):
    """Body of ``POST /v1/completions``."""

    prompt: Annotated[str | list[Any], Meta(description=PROMPTS)]
    suffix: Annotated[str, Meta(min_length=1, description="a string")] | None = None
    best_of: Annotated[int, integers(1, MOST_CHOICES)] | None = None
    max_tokens: Length | None = None
    logprobs: Logprobs | None = None
    echo: Flag = False
    add_special_tokens: Flag = True
    parse_special_tokens: Flag | None = None

    def generation(self) -> Generation:
        """The generation that the body asks for, with OpenAI's default length.

        If the client gave a seed, all prompts have that seed, as separate requests would. Without it, each prompt has
        another seed.
        """
        prompt, *more = self._prompts
        name, choices = ("n", self.n) if self.best_of is None else ("best_of", self.best_of)
        if choices * (1 + len(more)) > MOST_CHOICES:
            why = f"{1 + len(more)} prompts with {name} = {choices} ask for more than {MOST_CHOICES} answers"
            raise InvalidRequest(f"prompt: {why}: send several requests", param="prompt")
        given = (self.max_tokens, self.max_completion_tokens) != (None, None)
        most = self._most_tokens if given else _COMPLETION_TOKENS
        echo, logprobs = self.echo, 0 if self._kept and self.logprobs is None else self.logprobs
        if self.prompt_logprobs is not None:
            echo, logprobs = True, self._wanted.most
        generation = self._generation(prompt, self._structure, max_tokens=most, logprobs=logprobs, echo=echo)
        seed = generation.sampling.seed
        return msgspec.structs.replace(
            generation,
            choices=choices,
            kept=self._kept,
            keep_last=self.truncate_prompt_tokens,
            more=tuple(
                (prompt, choice_seed(seed, place * choices) if self.seed is None else seed)
                for place, prompt in enumerate(more, 1)
            ),
        )

    @property
    def _wanted(self) -> Wanted:
        return Wanted(self.prompt_logprobs, self.logprobs, self.echo)

    def shape(self, ignored: tuple[str, ...]) -> Shape:
        """The form of the answer; the answer names the ``ignored`` parameters."""
        shape = self._shape(Shape("completion", (), self.return_tokens, self.include_usage, ignored=ignored))
        return msgspec.structs.replace(shape, kept=self._kept, hides_logprobs=self.logprobs is None)

    @property
    def _kept(self) -> int:
        """Answers that each prompt keeps; 0 for all."""
        return self.n if self.best_of is not None and self.best_of > self.n else 0

    @property
    def _prompts(self) -> list[Prompt]:
        made = prompts(self.prompt, self.add_special_tokens, self.parse_special_tokens)
        if self.suffix is None:
            return made
        for name in ("echo", "truncate_prompt_tokens"):
            if getattr(self, name):
                raise InvalidRequest(f"{name} may not be given with suffix", param=name)
        if any(isinstance(prompt, Tokens) for prompt in made):
            raise InvalidRequest("prompt must be text where suffix is given, not token ids", param="prompt")
        return [msgspec.structs.replace(prompt, suffix=self.suffix) for prompt in made]


class ChatBody(Body, frozen=True, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: Annotated[
        list[dict[str, Any]], Meta(min_length=1, description="an array of messages with a role and a content")
    ]
    logprobs: Flag = False
    top_logprobs: Logprobs = 0
    tools: Annotated[
        list[Tool], Meta(max_length=128, description='an array of objects like {"type": "function", "function": {...}}')
    ] = msgspec.field(default_factory=list)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Flag = True
    chat_template_kwargs: TemplateKwargs | None = None
    chat_template: Annotated[str, Meta(min_length=1, description="a template in Jinja")] | None = None
    documents: Annotated[list[dict[str, Any]], Meta(description="an array of objects")] | None = None
    add_generation_prompt: Flag | None = None
    continue_final_message: Flag = False
    reasoning_effort: Effort | None = None
    enable_thinking: Flag | None = None
    thinking: Annotated[Thinking, Meta(description=THINKING)] | None = None
    thinking_token_budget: ThoughtBudget | None = None
    include_reasoning: Flag = True

    @property
    def call_rules(self) -> CallRules | None:
        """The rules for calls; None if no function may be called."""
        if not self.tools and self.tool_choice is None:
            return None
        return read_call_rules(self.tools, self.tool_choice, self.parallel_tool_calls)

    def generation(self) -> Generation:
        """The generation that the body asks for."""
        rules = self.call_rules
        prompt = msgspec.structs.replace(
            chat(self.messages, self._variables),
            answering=not self.continue_final_message and self.add_generation_prompt is not False,
            continuing=self.continue_final_message,
            template=self.chat_template or "",
        )
        if rules is not None:
            prompt = msgspec.structs.replace(prompt, tools=template_tools(self.tools))
        echo, logprobs = False, self.top_logprobs if self.logprobs else None
        if self.prompt_logprobs is not None:
            echo, logprobs = True, self._wanted.most
        generation = self._generation(
            prompt, self._structure, rules, max_tokens=self._most_tokens, logprobs=logprobs, echo=echo
        )
        return msgspec.structs.replace(
            generation,
            choices=self.n,
            splits=True,
            thought_budget=self._thought_budget,
            keep_last=self.truncate_prompt_tokens,
        )

    @property
    def _wanted(self) -> Wanted:
        return Wanted(self.prompt_logprobs, self.top_logprobs if self.logprobs else None)

    @property
    def _variables(self) -> dict[str, Any] | None:
        """The variables of the template."""
        given = self.chat_template_kwargs
        if self.documents is not None:
            given = {**(given or {}), "documents": self.documents}
        if self.reasoning_effort is None and self.enable_thinking is None and self.thinking is None:
            return given
        return template_variables(given, self.reasoning_effort, self.enable_thinking, self.thinking)

    @property
    def _thought_budget(self) -> int | None:
        if self.thinking is None or self.thinking_token_budget is not None:
            return self.thinking_token_budget
        return self.thinking.budget_tokens

    def shape(self, ignored: tuple[str, ...]) -> Shape:
        """The form of the answer; the answer names the ``ignored`` parameters."""
        rules = self.call_rules
        bare = rules is not None and rules.bare(format_structure(self.response_format))
        thoughts: Literal["shown", "hidden"] = "shown" if self.include_reasoning else "hidden"
        shape = self._shape(
            Shape("chat", (), self.return_tokens, self.include_usage, ignored=ignored, bare=bare, thoughts=thoughts)
        )
        return shape if rules is None else msgspec.structs.replace(shape, functions=rules.names, types=rules.types)


_B = TypeVar("_B", bound=Body)


def read_completion(body: bytes | dict[str, Any], ignored: list[str] | None = None) -> CompletionBody:
    """The body of a completion, read as `read` does; raises `InvalidRequest`."""
    completion = _consistent(read(body, CompletionBody, COMPLETION, ignored), ignored)
    if completion.max_tokens == 0 and not completion.echo:
        raise InvalidRequest("max_tokens must be an integer of at least 1 (0 with echo), not 0", param="max_tokens")
    if completion.best_of is not None and completion.best_of < completion.n:
        why = f"must be at least n, {completion.n}, not {completion.best_of}"
        raise InvalidRequest(f"best_of {why}", param="best_of")
    if completion.best_of is not None and completion.prompt_logprobs is not None:
        raise InvalidRequest("best_of may not be given with prompt_logprobs", param="best_of")
    if completion.best_of is not None and completion.stream:
        raise InvalidRequest("best_of may not be given where stream is true", param="best_of")
    if names := completion.unenforced:
        note_unenforced(names, ignored)
    return completion


def read_chat(body: bytes | dict[str, Any], ignored: list[str] | None = None) -> ChatBody:
    """The body of a chat completion, read as `read` does; raises `InvalidRequest`."""
    chat_body = _consistent(read(body, ChatBody, CHAT, ignored), ignored)
    if chat_body.top_logprobs and not chat_body.logprobs:
        raise InvalidRequest("top_logprobs may only be given where logprobs is true", param="top_logprobs")
    if chat_body.continue_final_message and chat_body.add_generation_prompt:
        why = "continue_final_message and add_generation_prompt may not both be true"
        raise InvalidRequest(why, param="continue_final_message")
    if names := chat_body.unenforced:
        note_unenforced(names, ignored)
    return chat_body


class ShapedGeneration(NamedTuple):
    """A generation, and the form of its answer for readers that resume it over HTTP."""

    generation: Generation
    shape: Shape


def read_body_of_any_kind(parameters: dict[str, Any], ignored: list[str] | None = None) -> ShapedGeneration:
    """The body of a chat if ``parameters`` hold messages, else of a completion, read as `read` does.

    Raises `InvalidRequest`.
    """
    kind = read_completion if parameters.get("messages") is None else read_chat
    body = kind(parameters, ignored)
    for name in ("prompt_logprobs", "timings_per_token"):
        if getattr(body, name) not in (None, False):
            raise InvalidRequest(f"{name} may only be given over HTTP", param=name)
    shape = body.shape(shown_names(ignored))
    return ShapedGeneration(body.generation(), msgspec.structs.replace(shape, include_usage=True))


def _consistent(body: _B, ignored: list[str] | None) -> _B:
    """``body``; raises `InvalidRequest` for parameters that contradict each other."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options may only be given where stream is true", param="stream_options")
    if body.prompt_logprobs is not None and body.stream:
        raise InvalidRequest("prompt_logprobs may only be given where stream is false", param="prompt_logprobs")
    if isinstance(body.response_format, JsonSchemaFormat) and body.response_format.json_schema.description is not None:
        note_part("response_format.json_schema.description", "", ignored)
    if None not in (body.max_tokens, body.max_completion_tokens) and body.max_tokens != body.max_completion_tokens:
        raise InvalidRequest("max_tokens and max_completion_tokens differ: give one of them", param="max_tokens")
    return body
