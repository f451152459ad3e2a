"""The bodies of llama-server's API and its answers (llama.cpp, tools/server/README.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.openai.bodies import CompletionBody
from outrider.gateway.api.openai.timings import Timings
from outrider.gateway.api.schema import unsupported
from outrider.gateway.api.schema.generation import AnswerBody
from outrider.gateway.api.schema.parameters import ANY, UNBOUNDED
from outrider.gateway.api.schema.prompts import TemplateKwargs
from outrider.gateway.request.generation import File, Generation
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Flag
from outrider.wire.sampling import Length

_PROMPT = "a string or an array of token ids"
_String = Annotated[str, Meta(description="a string")]
_FILES = "an array of up to 1024 objects with a text, and a filename"
_IDLE = ("samplers", "n_indent", "t_max_prompt_ms", "t_max_predict_ms", "timings_per_token")
COMPLETION = msgspec.structs.replace(
    unsupported.COMPLETION,
    altering={name: values for name, values in unsupported.COMPLETION.altering.items() if name not in _IDLE},
    idle={**unsupported.COMPLETION.idle, **dict.fromkeys(_IDLE, ANY)},
)


class CompletionRequest(AnswerBody, frozen=True, kw_only=True):
    """Body of ``POST /completion``; the whole answer has only the ``response_fields``, unless there are none."""

    prompt: Annotated[str | list[Any], Meta(description=_PROMPT)]
    max_tokens: Length | None = UNBOUNDED
    response_fields: Annotated[tuple[str, ...], Meta(max_length=64, description="an array of up to 64 strings")] = ()

    @property
    def asked(self) -> dict[str, Any]:
        """The parameters of the completion: where no token is asked for, the one behind the prompt is computed."""
        return super().asked | {"max_tokens": 1 if self.silent else self.max_tokens}

    @property
    def silent(self) -> bool:
        """Whether the prompt is to be computed for later requests, with no answer."""
        return self.max_tokens == 0

    def completion(self) -> CompletionBody:
        """The completion that this asks for."""
        return CompletionBody(prompt=self.prompt, **self.asked)

    def generation(self, body: CompletionBody) -> Generation:
        """The generation of ``body``, which is that of `completion`; raises `InvalidRequest` for several prompts."""
        made = body.generation()
        if made.more:
            raise InvalidRequest(f"prompt must be {_PROMPT}, not several", param="prompt")
        return made


class InfillRequest(CompletionRequest, frozen=True, kw_only=True):
    """Body of ``POST /infill``: a completion of ``input_prefix`` and ``prompt`` in front of ``input_suffix``."""

    input_prefix: _String
    input_suffix: _String
    input_extra: Annotated[tuple[File, ...], Meta(max_length=1024, description=_FILES)] = ()
    prompt: _String = ""

    def completion(self) -> CompletionBody:
        """The completion, in which no text is a special token."""
        whole = self.input_prefix + self.prompt
        return CompletionBody(prompt=whole, suffix=self.input_suffix, parse_special_tokens=False, **self.asked)

    def generation(self, body: CompletionBody) -> Generation:
        """The generation of ``body``, with the files of ``input_extra`` in front of its prompt."""
        made = body.generation()
        return msgspec.structs.replace(made, prompt=msgspec.structs.replace(made.prompt, files=self.input_extra))


class TemplateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``POST /apply-template``."""

    messages: Annotated[
        list[dict[str, Any]], Meta(min_length=1, description="an array of messages with a role and a content")
    ]
    add_generation_prompt: Flag = True
    chat_template_kwargs: TemplateKwargs | None = None
    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None


class Rendered(msgspec.Struct):
    """Answer of ``POST /apply-template``."""

    prompt: str


class CompletionPart(msgspec.Struct, omit_defaults=True):
    """An event of ``POST /completion``, or its whole answer: the fields from ``model`` on are in the last event."""

    content: str
    tokens: list[int]
    stop: bool
    index: Literal[0] | None = None
    model: str = ""
    stop_type: Literal["", "eos", "limit", "word"] = ""
    stopping_word: str = ""
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    tokens_cached: int | None = None
    truncated: bool | None = None
    timings: Timings | None = None


class GenerationSettings(msgspec.Struct):
    """The number of tokens that the context holds."""

    n_ctx: int


class Props(msgspec.Struct):
    """Answer of ``GET /props``."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str = ""
    build_info: str = ""
