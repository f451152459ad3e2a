"""Chat requests of every kind, each used once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
from outrider.measure.chats import edits, everyday, forms, functions, passages
from outrider.measure.chats.chat_request import ChatRequest
from outrider.measure.load.prompts import PromptsError

KINDS = ("edit", "code", "chat", "extract", "rag")
MIXED = "mixed"
"""All kinds in random order, each request with its own temperature."""
WORKLOADS = (*KINDS, MIXED)
TEMPERATURES = (0.0, 0.7, 1.0)
"""Temperatures of mixed requests."""
CONTEXT = 2000, 6000
"""Tokens of the contexts of *rag*."""
PREFILL = 1000, 1000
"""Tokens of the contexts of *prefill*, which is answered by one token."""


class ChatSupply:
    """Requests by kind; each is used once, and ``seed`` fixes all of them.

    Args:
        seed: seed of all random choices.
        context: approximate fewest and most tokens of the contexts of *rag*.
        max_tokens: upper bound on the tokens of an answer, beside the kind's own bound.
    """

    def __init__(self, seed: int = 0, context: tuple[int, int] = CONTEXT, max_tokens: int | None = None) -> None:
        makers: dict[str, Callable[[random.Random], Iterator[ChatRequest]]] = {
            "edit": edits.edits,
            "code": functions.functions,
            "chat": everyday.questions,
            "extract": forms.forms,
            "rag": lambda draw: passages.questions(draw, context),
            "prefill": lambda draw: passages.questions(draw, PREFILL),
        }
        self._remaining = {kind: make(random.Random(f"{seed} {kind}")) for kind, make in makers.items()}
        self._draw, self._max_tokens, self._seeds = random.Random(seed), max_tokens, itertools.count()

    def take(self, workload: str, count: int, temperature: float | None = None) -> list[ChatRequest]:
        """``count`` requests of ``workload`` at ``temperature``; None keeps their own temperatures.

        Raises:
            PromptsError: fewer are left.
        """
        if workload == MIXED:
            return self._mix(count)
        requests = list(itertools.islice(self._remaining[workload], count))
        if len(requests) < count:
            raise PromptsError(f"there are too few requests of {workload}: give fewer --repeats, or fewer --requests")
        return [
            self._finish(chat, workload, chat.temperature if temperature is None else temperature) for chat in requests
        ]

    def _mix(self, count: int) -> list[ChatRequest]:
        """Equally many requests of each kind, as far as ``count`` allows."""
        kinds = itertools.islice(itertools.cycle(KINDS), count)
        mixed = [self.take(kind, 1, self._draw.choice(TEMPERATURES))[0] for kind in kinds]
        self._draw.shuffle(mixed)
        return mixed

    def _finish(self, chat: ChatRequest, workload: str, temperature: float) -> ChatRequest:
        most = 1 if workload == "prefill" else chat.max_tokens
        bound = min(most, self._max_tokens or most)
        return msgspec.structs.replace(chat, temperature=temperature, seed=next(self._seeds), max_tokens=bound)


def endless(
    workload: str, seed: int, max_tokens: int | None = None, temperature: float | None = None
) -> Iterator[ChatRequest]:
    """Requests of ``workload`` without end; a mix has each kind once in every round.

    When none is left, all come again, each behind a number, so that no prompt begins as an earlier one.
    """
    several = len(KINDS) if workload == MIXED else 1
    for lap in itertools.count():
        supply = ChatSupply(seed, max_tokens=max_tokens)
        with suppress(PromptsError):
            while True:
                for chat in supply.take(workload, several, temperature):
                    yield msgspec.structs.replace(chat, text=f"({lap}) {chat.text}") if lap else chat
