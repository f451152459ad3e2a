"""The parameters that all of OpenAI's requests for a generation share."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any, Literal

from msgspec import Meta, field, structs
from outrider.gateway.admission.deadlines import NO_DEADLINES, Deadlines
from outrider.gateway.api.schema.prompts import Prediction
from outrider.gateway.api.schema.structure import GrammarText, JsonSchema, StructuredOutputs, Texts
from outrider.gateway.request.generation import CallRules, Generation, Prompt, Structure
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import (
    INT32,
    MOST_PRIORITY,
    Count,
    Flag,
    TokenId,
    integers,
    integers_from,
    numbers,
    numbers_above,
)
from outrider.wire.sampling import (
    MOST_BAD_WORDS,
    MOST_BIAS,
    MOST_BIASES,
    MOST_NODES,
    MOST_STOPS,
    BadWord,
    Biases,
    Guessing,
    SamplingParams,
    Seed,
    SharedParameters,
    ShortText,
    Speculation,
)

_SEED_BITS = 53  # a returned seed survives clients whose numbers are doubles
LEFT_TO_MODELS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_MOST_WORDS = MOST_BAD_WORDS // 2
_FORMATS = ("", "response_format", "text")
"""Parameters whose structure is that of text beside calls."""

BIASES = (
    f"an object of up to {MOST_BIASES} token ids with numbers from -{MOST_BIAS} to {MOST_BIAS}, or an array of up to "
    f"{MOST_BIASES} pairs of a token id or a string with such a number or false"
)

DAY_MS = 86_400_000
Milliseconds = Annotated[int, integers(1, DAY_MS)]
_Name = Annotated[str, Meta(max_length=1024, description="a string of up to 1024 characters")]


class GenerationBody(SharedParameters, frozen=True, kw_only=True):
    """The parameters that completions, chats and responses share. Those that are None are left to the model."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model")] | None = None
    temperature: Annotated[float, numbers(0, 100)] | None = None  # type: ignore[assignment]
    top_p: Annotated[float, numbers_above(0, 1)] | None = None  # type: ignore[assignment]
    top_k: Annotated[int, integers_from(0, " (0 keeps all)")] | None = None  # type: ignore[assignment]
    min_p: Annotated[float, numbers(0, 1)] | None = None  # type: ignore[assignment]
    repetition_penalty: Annotated[float, numbers_above(0, 100)] | None = None  # type: ignore[assignment]
    seed: Seed | None = None
    stop: Annotated[
        ShortText | Annotated[tuple[ShortText, ...], Meta(max_length=MOST_STOPS)],
        Meta(description=f"a string or an array of up to {MOST_STOPS} strings, each of 1 to 1000 characters"),
    ] = ()
    bad_words: Annotated[
        tuple[ShortText | BadWord, ...],
        Meta(max_length=_MOST_WORDS, description=f"an array of up to {_MOST_WORDS} strings or arrays of token ids"),
    ] = ()
    logit_bias: Annotated[
        Biases | Annotated[tuple[tuple[TokenId | ShortText, float | bool], ...], Meta(max_length=MOST_BIASES)],
        Meta(description=BIASES),
    ] = field(default_factory=dict)  # type: ignore[assignment]
    structured_outputs: (
        Annotated[
            StructuredOutputs, Meta(description="an object with one of json, json_object, regex, choice and grammar")
        ]
        | None
    ) = None
    stream: Flag = False
    speculation: Annotated[
        Literal["off"] | Guessing,
        Meta(description=f'"off", or an object with "drafters" (names), "max_nodes" (1 to {MOST_NODES}) and "private"'),
    ] = Guessing()
    return_tokens: Flag = False
    return_drafts: Flag = False
    priority: Annotated[int, integers(-MOST_PRIORITY, MOST_PRIORITY, ", lower ones first")] = 0
    ttft_ms: Milliseconds | None = None
    timeout_ms: Milliseconds | None = None
    coalesce: Flag = True
    prediction: (
        Annotated[Prediction, Meta(description='an object like {"type": "content", "content": "..."}')] | None
    ) = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024, description="a string of 1 to 1024 characters")] | (
        None
    ) = None
    user: _Name | None = None
    prompt_cache_key: _Name | None = None

    @property
    def call_rules(self) -> CallRules | None:
        """The rules for calls; None if no function may be called."""
        return None

    @property
    def unenforced(self) -> tuple[str, ...]:
        """Names of the places of JSON Schemas that are not enforced. Raises `InvalidRequest` for malformed ones."""
        rules, structure = self.call_rules, self._structure
        functions = () if rules is None else rules.functions
        text = structure.unenforced if structure is not None and (rules is None or rules.may_talk) else ()
        return (*text, *(name for function in functions for name in function.unenforced))

    @property
    def _structure(self) -> Structure | None:
        return None

    def _generation(
        self, prompt: Prompt, structure: Structure | None, call_rules: CallRules | None = None, **draws: Any
    ) -> Generation:
        """The generation that the body asks for; ``draws`` are sampling parameters that bodies name differently."""
        chosen = None if self.seed == -1 else self.seed  # as in vLLM, llama-server and Ollama
        seed = secrets.randbits(_SEED_BITS) if chosen is None else chosen
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        listed: tuple[Any, ...] = ()
        shared = self
        if isinstance(self.logit_bias, tuple):
            listed, shared = self.logit_bias, structs.replace(self, logit_bias={})
        return Generation(
            model=self.model,
            prompt=prompt,
            sampling=SamplingParams.of(shared, seed=seed, stop=stop, **draws),
            bad_words=self.bad_words,
            biases=tuple(map(_bias, listed)),
            structure=structure if call_rules is None else self._text_structure(call_rules, structure),
            speculation=self._speculation(),
            priority=-self.priority,
            session=self.prompt_cache_key or self.user or "",
            deadlines=self._deadlines,
            coalesce=self.coalesce and (chosen is not None or self.temperature == 0),
            call_rules=call_rules,
            unnamed=tuple(name for name in LEFT_TO_MODELS if getattr(self, name) is None),
            prediction="" if self.prediction is None else self.prediction.text,
            cache_salt="" if self.cache_salt is None else hashlib.sha256(self.cache_salt.encode()).hexdigest(),
        )

    @property
    def _deadlines(self) -> Deadlines:
        if self.ttft_ms is None and self.timeout_ms is None:
            return NO_DEADLINES
        return Deadlines.within(self.ttft_ms, self.timeout_ms)

    def _text_structure(self, call_rules: CallRules, structure: Structure | None) -> Structure | None:
        """The structure of text beside calls; None if the answer has to be calls. Raises `InvalidRequest`."""
        name = "" if structure is None else structure.param.partition(".")[0]
        if name not in _FORMATS:
            raise InvalidRequest(f"{name} may not be given where functions may be called", param=name)
        return structure if call_rules.may_talk else None

    def _speculation(self) -> Speculation:
        options = {"off": True} if isinstance(self.speculation, str) else structs.asdict(self.speculation)
        return Speculation(**options, return_drafts=self.return_drafts)


class AnswerBody(GenerationBody, frozen=True, kw_only=True):
    """The parameters that completions and chats share with the requests of Ollama and llama-server."""

    max_tokens: Count | None = None
    grammar: GrammarText | None = None
    json_schema: JsonSchema | None = None
    guided_json: JsonSchema | None = None
    guided_regex: Annotated[str, Meta(description="a regular expression")] | None = None
    guided_choice: Texts | None = None
    guided_grammar: GrammarText | None = None
    truncate_prompt_tokens: Annotated[int, integers(-1, INT32)] | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """These parameters by name."""
        return {name: getattr(self, name) for name in AnswerBody.__struct_fields__}


def _bias(pair: tuple[int | str, float | bool]) -> tuple[int | str, float | None]:
    """A pair of llama-server's ``logit_bias``; a bias of None bans."""
    what, bias = pair
    if bias is True or abs(bias) > MOST_BIAS:
        raise InvalidRequest(f"logit_bias must be {BIASES}", param="logit_bias")
    return what, None if bias is False else bias
