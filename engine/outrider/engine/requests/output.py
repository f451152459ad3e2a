"""What a request gets: tokens with their texts, as the engine decides them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
    REFUSED = "refused"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of a request, in tokens. ``steps`` is how many times the target ran for its generated tokens.

    ``lossy`` says that guesses were accepted by a rule under which the answer's law is not the target's own.
    ``emitted`` tokens were generated elsewhere before; their cost is not counted here. ``verified[i]`` is the number of
    steps that verified guesses and accepted ``i`` of them, up to the depth of the deepest guess. ``predicted`` has the
    accepted and the rejected guesses of the request's prediction; None without one. ``reasoning_tokens`` are those of
    the thought and its marks.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    accepted_tokens: int = 0
    rejected_tokens: int = 0
    steps: int = 0
    lossy: bool = False
    emitted: int = 0
    verified: list[int] = field(default_factory=list)
    predicted: tuple[int, int] | None = None
    reasoning_tokens: int = 0


class Alternative(NamedTuple):
    """A likely token at some place: its id, the target's own natural log-probability of it, and its bytes."""

    token: int
    logprob: float
    data: bytes


class Likelihood(NamedTuple):
    """How likely a token was to the target: its natural log-probability before penalties, temperature and truncation.

    ``logprob`` is None for a prompt's first token, which has no token before it. ``data`` are the token's bytes.
    ``top`` lists the likeliest tokens at its place, likeliest first (the lower id on a tie), as many as were asked for.
    ``rank`` is the number of tokens at least as likely as the token; 0 with a ``logprob`` of None.
    """

    logprob: float | None
    data: bytes
    top: list[Alternative]
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """The tree of guesses that one step verified.

    Node ``i`` guesses the token ``tokens[i]``, whose bytes are ``data[i]``, behind its parent, the node ``parents[i]``,
    which stands before it; with the parent -1 it guesses the request's generated token ``first_index``.
    ``guessed_by[i]`` names its drafter. ``accepted`` lists the nodes that became tokens of the answer, from the top
    down.
    """

    first_index: int
    tokens: list[int]
    data: list[bytes]
    parents: list[int]
    guessed_by: list[str]
    accepted: list[int]


@dataclass(slots=True)  # a frozen one takes 3 µs to make, and each sequence of a step makes one
class Output:
    """Tokens ``first_index`` to ``first_index + len(tokens) - 1`` of a request's generated tokens.

    A prompt that is echoed stands before them: its last token has the index -1.

    ``texts[i]`` is the text that ``tokens[i]`` made final: empty while half a character or a possible stop string
    is held back. ``guessed_by[i]`` names the drafter that guessed ``tokens[i]``, or is empty where the target
    decided it alone. ``finish`` and ``usage`` are set on the last output only (without ``usage`` where nothing was
    computed), ``error`` says why the engine ended the request. ``likelihoods`` has one for each of ``tokens`` where
    they were asked for, ``drafts`` the tree of the step that decided ``tokens``, without nodes where nothing was
    guessed. The first ``thought`` of the tokens belong to a thought in front of the answer, and so do their texts.
    ``stop`` is the stop string that ended the answer, on the last output. ``embedding`` is on the only output of a
    request that embeds its prompt: little-endian float32 [hidden_size] of length 1.
    """

    request: str
    first_index: int
    tokens: list[int]
    texts: list[str]
    guessed_by: list[str]
    finish: Finish | None = None
    usage: Usage | None = None
    error: str | None = None
    likelihoods: list[Likelihood] | None = None
    drafts: list[Draft] | None = None
    thought: int = 0
    stop: str | None = None
    embedding: bytes | None = None
