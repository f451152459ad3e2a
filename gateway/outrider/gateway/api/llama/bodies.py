"""The bodies of llama-server's API and its answers (llama.cpp, tools/server/README.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from outrider.gateway.api.ollama.bodies import Options
from outrider.gateway.api.openai.bodies import CompletionBody
from outrider.gateway.api.openai.timings import Timings
from outrider.gateway.api.schema.parameters import UnsupportedParameters
from outrider.gateway.api.schema.prompts import TemplateKwargs
from outrider.gateway.api.schema.structure import StructuredOutputs
from outrider.gateway.request.generation import Generation
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import Flag

_PROMPT = "a string or an array of token ids"
_IDLE = (
    "cache_prompt",
    "id_slot",
    "n_keep",
    "n_probs",
    "samplers",
    "response_fields",
    "timings_per_token",
    "t_max_prompt_ms",
    "t_max_predict_ms",
)
COMPLETION = UnsupportedParameters(altering={"image_data": ([],), "num_predict": ()}, idle=dict.fromkeys(_IDLE, ()))


class CompletionRequest(Options, frozen=True, kw_only=True):
    """Body of ``POST /completion``; a negative ``n_predict`` leaves the length to the model and its context."""

    prompt: Annotated[str | list[Any], Meta(description=_PROMPT)]
    n_predict: int = -1
    seed: Annotated[int, Meta(ge=-1, description="an integer of at least -1 (-1 for any)")] | None = None
    stream: Flag = False
    return_tokens: Flag = False
    grammar: str = ""
    json_schema: dict[str, Any] | None = None
    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None

    def completion(self) -> CompletionBody:
        """The completion that this asks for; raises `InvalidRequest`."""
        if self.n_predict == 0:
            raise InvalidRequest("n_predict must be at least 1, or below 0 for any length", param="n_predict")
        form = None
        if self.grammar or self.json_schema is not None:
            form = StructuredOutputs(json=self.json_schema, grammar=self.grammar or None)
        asked = self.parameters() | {"seed": None if self.seed == -1 else self.seed}
        asked["max_tokens"] = self.n_predict if self.n_predict > 0 else None
        return CompletionBody(prompt=self.prompt, model=self.model, structured_outputs=form, **asked)

    def generation(self, body: CompletionBody) -> Generation:
        """The generation of ``body``, as long as the context allows if the length is left to the model."""
        made = body.generation()
        if made.more:
            raise InvalidRequest(f"prompt must be {_PROMPT}, not several", param="prompt")
        sampling = msgspec.structs.replace(made.sampling, max_tokens=body.max_tokens)
        return msgspec.structs.replace(made, sampling=sampling)


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
