"""A request for a generation, in the form that all APIs share."""

from __future__ import annotations

import msgspec
from outrider.gateway.admission.deadlines import Deadlines
from outrider.gateway.requests.call_rules import CallRules
from outrider.v1.sampling_pb2 import Grammar
from outrider.wire.bounds import MOST_PRIORITY
from outrider.wire.sampling import UNSIGNED, SamplingParams, Speculation

_GOLDEN = 0x9E3779B97F4A7C15
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


class Text(msgspec.Struct, frozen=True):
    """A prompt of plain text.

    With ``add_special``, the tokenizer adds its special tokens, often a beginning-of-text token. With
    ``parse_special``, names of special tokens in the text become those tokens; None uses the caller's setting. A text
    that is no prompt has a ``param``, its name in errors.
    """

    text: str
    add_special: bool = True
    parse_special: bool | None = None
    param: str = ""


class Messages(msgspec.Struct, frozen=True):
    """A chat: messages and tools as JSON arrays; without tools, ``tools`` is empty.

    ``answering`` opens the assistant's turn at the end. ``variables`` is a JSON object for the template, or empty.
    """

    json: str
    tools: str = ""
    answering: bool = True
    variables: str = ""


class Tokens(msgspec.Struct, frozen=True):
    """A prompt of token ids."""

    ids: list[int]


Prompt = Text | Messages | Tokens


def with_parse_special(prompt: Prompt, parse_special: bool) -> Prompt:
    """``prompt``; a `Text` whose ``parse_special`` is None gets this one."""
    if isinstance(prompt, Text) and prompt.parse_special is None:
        return msgspec.structs.replace(prompt, parse_special=parse_special)
    return prompt


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
    token ids, and ``structure`` enter ``sampling`` once texts are tokenized. ``priority`` is that of
    ``verifier.proto``, higher first, at least `LEAST_PRIORITY`. ``session`` names the conversation of the request, for
    routers that keep a conversation on one verifier. With ``coalesce``, an identical request may share the answer; its
    tokens must be fixed, by a given seed or a temperature of 0. If there are ``call_rules``, ``structure`` applies to
    text beside calls. ``prediction`` is the text that the client expects for an answer.
    """

    model: str | None
    prompt: Prompt
    sampling: SamplingParams
    bad_words: tuple[str | tuple[int, ...], ...] = ()
    structure: Structure | None = None
    speculation: Speculation = Speculation()
    choices: int = 1
    priority: int = 0
    session: str = ""
    deadlines: Deadlines = Deadlines()
    coalesce: bool = False
    call_rules: CallRules | None = None
    more: tuple[tuple[Prompt, int], ...] = ()
    prediction: str = ""
