"""A request for a generation, in the form that all APIs share."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
from outrider.gateway.abuse import Sample
from outrider.gateway.admission.deadlines import NO_DEADLINES, Deadlines
from outrider.gateway.schemas.parameters import Parameters, ParameterTypes
from outrider.v1.sampling_pb2 import Grammar
from outrider.wire.bounds import MOST_PRIORITY
from outrider.wire.sampling import UNSIGNED, SamplingParams, Speculation

_GOLDEN = 0x9E3779B97F4A7C15
_BEGINNING = 256
"""Characters at the beginning of a prompt, or tokens, that are compared."""
_SHORT = 4
"""Most tokens of a short answer."""
_MANY_LOGPROBS = 10
LEAST_PRIORITY = -MOST_PRIORITY
"""The lowest priority."""


def choice_seed(seed: int, choice: int) -> int:
    """The seed of one of a request's choices: the first choice has the request's own seed.

    The others have the upper 53 bits of the ``choice``-th number of SplitMix64 (Steele, Lea and Flood 2014) with the
    request's seed; 53 bits survive clients whose numbers are doubles.
    """
    if choice == 0:
        return seed
    mixed = (seed + choice * _GOLDEN) & UNSIGNED
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & UNSIGNED
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & UNSIGNED
    return (mixed ^ (mixed >> 31)) >> 11


class File(msgspec.Struct, frozen=True):
    """A text that stands in front of a prompt with a suffix, with its name."""

    text: str
    filename: str = ""


class Text(msgspec.Struct, frozen=True):
    """A prompt of plain text.

    With ``add_special``, the tokenizer adds its special tokens, often a beginning-of-text token. With
    ``parse_special``, names of special tokens in the text become those tokens; None uses the caller's setting. A text
    that is no prompt has a ``param``, its name in errors. The answer to a prompt with a ``suffix`` stands between them,
    behind the ``files``.
    """

    text: str
    add_special: bool = True
    parse_special: bool | None = None
    param: str = ""
    suffix: str | None = None
    files: tuple[File, ...] = ()


class Messages(msgspec.Struct, frozen=True):
    """A chat: messages and tools as JSON arrays; without tools, ``tools`` is empty.

    ``answering`` opens the assistant's turn at the end. ``variables`` is a JSON object for the template, or empty. With
    ``continuing``, the last message is left open. ``template`` takes the place of the model's, unless it is empty.
    """

    json: str
    tools: str = ""
    answering: bool = True
    variables: str = ""
    continuing: bool = False
    template: str = ""


class Tokens(msgspec.Struct, frozen=True):
    """A prompt of token ids."""

    ids: list[int]


Prompt = Text | Messages | Tokens


def with_parse_special(prompt: Prompt, parse_special: bool) -> Prompt:
    """``prompt``; a `Text` whose ``parse_special`` is None gets this one."""
    if isinstance(prompt, Text) and prompt.parse_special is None:
        return msgspec.structs.replace(prompt, parse_special=parse_special)
    return prompt


class CallableFunction(msgspec.Struct, frozen=True):
    """A function that an answer may call; ``schema`` is the JSON Schema of its arguments, for the compiler.

    ``unenforced`` names the places of the client's schema that ``schema`` leaves out.
    """

    name: str
    schema: str
    unenforced: tuple[str, ...] = ()


class CallRules(msgspec.Struct, frozen=True):
    """An answer calls ``functions``, at most ``most`` times.

    If it ``may_talk``, it may also be text, or text before calls. ``param`` is the client's parameter, for messages.
    """

    functions: tuple[CallableFunction, ...]
    may_talk: bool
    most: int
    param: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(function.name for function in self.functions)

    @property
    def types(self) -> tuple[ParameterTypes, ...]:
        """The types of each function's parameters."""
        return tuple(Parameters.of(function.schema).types() for function in self.functions)

    def bare(self, text: object) -> bool:
        """Whether calls without the format's marks are read as calls; ``text`` is the structure of text, or None."""
        return self.may_talk and text is None


class Structure(msgspec.Struct, frozen=True):
    """The grammar that an answer has to fit; ``param`` is the client's parameter, for messages.

    ``unenforced`` names the places of the client's JSON Schema that the grammar leaves out.
    """

    param: str
    grammar: Grammar
    unenforced: tuple[str, ...] = ()


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A request for answers to one or several prompts.

    ``model`` is None if the client leaves the choice to the gateway. ``more`` holds the prompts after ``prompt``, each
    with a seed that replaces the one in ``sampling``; each prompt gets ``choices`` answers. ``bad_words``, texts or
    token ids, ``biases`` of tokens or of texts' tokens (None bans), and ``structure`` enter ``sampling`` once texts are
    tokenized. ``priority`` is that of ``verifier.proto``, higher first, at least `LEAST_PRIORITY`. ``session`` names
    the conversation of the request, for routers that keep a conversation on one verifier. With ``coalesce``, an
    identical request may share the answer; its tokens must be fixed, by a given seed or a temperature of 0. If there
    are ``call_rules``, ``structure`` applies to text beside calls. ``prediction`` is the text that the client expects
    for an answer. An API that tells thoughts from answers (`Frame.thought`) ``splits`` them; a thought has at most
    ``thought_budget`` tokens. ``unnamed`` lists parameters of ``sampling`` that the client left to the model. Only
    requests with the same ``cache_salt`` share pages and answers. ``keep_last`` is how many tokens at the end of each
    prompt count; -1 is as many as there is room for. The client gets the ``kept`` likeliest of each prompt's answers;
    0 is all. With ``embed``, the embeddings of the prompts are all that is wanted.
    """

    model: str | None
    prompt: Prompt
    sampling: SamplingParams
    bad_words: tuple[str | tuple[int, ...], ...] = ()
    biases: tuple[tuple[int | str, float | None], ...] = ()
    structure: Structure | None = None
    speculation: Speculation = Speculation()
    choices: int = 1
    priority: int = 0
    session: str = ""
    deadlines: Deadlines = NO_DEADLINES
    coalesce: bool = False
    call_rules: CallRules | None = None
    more: tuple[tuple[Prompt, int], ...] = ()
    prediction: str = ""
    splits: bool = False
    thought_budget: int | None = None
    unnamed: tuple[str, ...] = ()
    cache_salt: str = ""
    keep_last: int | None = None
    kept: int = 0
    embed: bool = False

    @property
    def operation(self) -> str:
        """What is asked for, by OpenTelemetry's conventions for generative AI."""
        if self.embed:
            return "embeddings"
        return "chat" if isinstance(self.prompt, Messages) else "text_completion"


def samples_of(generation: Generation) -> list[Sample]:
    """What rules of abuse look at: a sample for each prompt."""
    sampling = generation.sampling
    short = sampling.max_tokens is not None and sampling.max_tokens <= _SHORT
    logprobs = short and (sampling.logprobs or 0) >= _MANY_LOGPROBS
    samples = []
    for prompt in (generation.prompt, *(prompt for prompt, _ in generation.more)):
        content = _content(prompt)
        hashes = hash(_hashable(content)), hash(_hashable(content[:_BEGINNING]))
        samples.append(Sample(*hashes, generation.choices, sampling.temperature > 0, short, logprobs))
    return samples


def _content(prompt: Prompt) -> str | list[int]:
    if isinstance(prompt, Text):
        return prompt.text
    return prompt.json if isinstance(prompt, Messages) else prompt.ids


def _hashable(content: str | list[int]) -> Hashable:
    return content if isinstance(content, str) else tuple(content)
