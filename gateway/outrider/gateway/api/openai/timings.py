"""``timings`` of an answer in llama-server's form."""

from __future__ import annotations

import time

import msgspec
from msgspec import UNSET, UnsetType
from outrider.wire.frames import Usage


class Timings(msgspec.Struct):
    """Tokens and milliseconds of a prompt and of its answer so far; ``cache_n`` tokens were not computed again."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int | UnsetType = UNSET
    draft_n_accepted: int | UnsetType = UNSET


class Stopwatch:
    """Times one choice for one reader: the prompt until the first token, then the answer."""

    def __init__(self) -> None:
        self._began, self._first, self._last = time.monotonic(), 0.0, 0.0

    def note(self) -> None:
        """Notes that tokens of the answer have arrived."""
        self._last = time.monotonic()
        self._first = self._first or self._last

    def timings(self, prompt: int, generated: int, usage: Usage | None) -> Timings:
        """The times of ``prompt`` tokens and ``generated`` ones; the ``usage`` that ends an answer tells the rest."""
        cached = 0 if usage is None else usage.cached_tokens
        first = self._first or time.monotonic()
        made = Timings(cached, *_rates(prompt - cached, first - self._began), *_rates(generated, self._last - first))
        if usage is not None and (guesses := usage.accepted_tokens + usage.rejected_tokens):
            made.draft_n, made.draft_n_accepted = guesses, usage.accepted_tokens
        return made


def _rates(tokens: int, seconds: float) -> tuple[int, float, float, float]:
    """Tokens, milliseconds, milliseconds a token and tokens a second; 0 where there is nothing to divide by."""
    seconds = max(seconds, 0.0)
    each = seconds / tokens if tokens else 0.0
    return tokens, seconds * 1e3, each * 1e3, 1 / each if each else 0.0
