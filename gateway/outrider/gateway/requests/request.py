"""One generation as every front door of the gateway asks for it."""

from __future__ import annotations

import msgspec
from outrider.gateway.admission.deadlines import Deadlines
from outrider.gateway.requests.calling import Calling
from outrider.v1.sampling_pb2 import Grammar
from outrider.wire.bounds import MOST_PRIORITY
from outrider.wire.sampling import UNSIGNED, SamplingParameters, Speculation

DEFAULT_TENANT = "default"
"""Whose requests all are."""

_GOLDEN = 0x9E3779B97F4A7C15
LEAST_PRIORITY = -MOST_PRIORITY
"""What verifiers put last."""


def choice_seed(seed: int, choice: int) -> int:
    """Seed of one of a request's choices: the first has the request's own.

    The others have the upper 53 bits (a number that survives clients whose numbers are doubles) of what SplitMix64
    (Steele, Lea and Flood 2014) gives as its ``choice``-th number from the request's seed.
    """
    if choice == 0:
        return seed
    mixed = (seed + choice * _GOLDEN) & UNSIGNED
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & UNSIGNED
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & UNSIGNED
    return (mixed ^ (mixed >> 31)) >> 11


class Text(msgspec.Struct, frozen=True):
    """A prompt of plain text.

    ``add_special`` has the tokenizer put around it what it puts around a text (often a beginning-of-text token).
    ``parse_special`` takes names of special tokens in it for those tokens; None leaves that to the caller's settings.
    """

    text: str
    add_special: bool = True
    parse_special: bool | None = None


class Messages(msgspec.Struct, frozen=True):
    """A chat: messages and tools as JSON arrays; no tools are an empty string.

    ``answering`` opens the assistant's turn at the end; ``variables`` are a JSON object that the template may read, or
    empty.
    """

    json: str
    tools: str = ""
    answering: bool = True
    variables: str = ""


class Tokens(msgspec.Struct, frozen=True):
    """A prompt that is tokenized already."""

    ids: list[int]


Prompt = Text | Messages | Tokens


def settled(prompt: Prompt, parse_special: bool) -> Prompt:
    """``prompt``; a text that leaves it open parses special tokens if ``parse_special`` says so."""
    if isinstance(prompt, Text) and prompt.parse_special is None:
        return msgspec.structs.replace(prompt, parse_special=parse_special)
    return prompt


class Structure(msgspec.Struct, frozen=True):
    """What an answer has to be; ``param`` is what the client calls it."""

    param: str
    grammar: Grammar


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be generated.

    Bad words, texts or token ids, and the ``structure`` stand beside the ``sampling`` until texts are tokenized. There
    may be ``more`` prompts than ``prompt``, each with a seed, which it has in place of the sampling's.
    ``model`` None means the only one there is; ``choices`` is how many answers to each prompt are wanted.
    ``priority``, higher first, is that of ``verifier.proto``, from `LEAST_PRIORITY` on. ``session`` names the
    conversation that it belongs to, for routers that keep one together.
    ``coalesce`` says that the answer of another that asks for the very same will do; its tokens must be fixed, by a
    seed that was given or by a temperature of 0. Where there is a ``calling``, the structure is what the
    answer's text has to be.
    """

    model: str | None
    prompt: Prompt
    sampling: SamplingParameters
    bad_words: tuple[str | tuple[int, ...], ...] = ()
    structure: Structure | None = None
    speculation: Speculation = Speculation()
    choices: int = 1
    priority: int = 0
    session: str = ""
    deadlines: Deadlines = Deadlines()
    coalesce: bool = False
    calling: Calling | None = None
    more: tuple[tuple[Prompt, int], ...] = ()
