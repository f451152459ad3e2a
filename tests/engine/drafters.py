"""Drafters for tests: one that guesses everything, so that every row of every tree counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.speculation import Drafter, DraftTree, Opening, Traits
from outrider.kernels.batch import RaggedBatch, SequenceRows
from torch import Tensor


class EverythingDrafter(Drafter):
    """Guesses every token of a toy vocabulary at every depth: each step's walk goes all the way down.

    Attributes:
        guesses: tokens of its trees; a test may change some.
        parents: of these.
    """

    name = "everything"
    context_length = 10**6

    def __init__(self, vocabulary: int, depth: int) -> None:
        tokens: list[int] = []
        parents: list[int] = []
        above = [-1]
        for _ in range(depth):
            start = len(tokens)
            for parent in above:
                tokens.extend(range(vocabulary))
                parents.extend([parent] * vocabulary)
            above = list(range(start, len(tokens)))
        self.guesses, self.parents = tokens, parents
        self._lengths: dict[int, int] = {}

    def open(self, session: int, opening: Opening) -> None:
        self._lengths[session] = len(opening.tokens)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        self._lengths[session] = length + len(tokens)

    def close(self, session: int) -> None:
        self._lengths.pop(session, None)

    def draft(self) -> list[tuple[int, DraftTree]]:
        sure = [0.9] * len(self.guesses)
        return [
            (session, DraftTree(length, self.guesses, self.parents, sure, self.name))
            for session, length in self._lengths.items()
        ]


class Watcher(EverythingDrafter):
    """Keeps the tokens and the states of every sequence; the states may begin behind the first token.

    Attributes:
        tokens: by session.
        first: place of the first token with states, by session.
        rows: the states of each call, by session.
    """

    name = "watcher"

    def __init__(self, vocabulary: int, depth: int, layers: tuple[int, ...], *, whole: bool = True) -> None:
        super().__init__(vocabulary, depth)
        self.traits = Traits(layers=layers, whole=whole)
        self.tokens: dict[int, list[int]] = {}
        self.first: dict[int, int] = {}
        self.rows: dict[int, list[Tensor]] = {}

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self.tokens[session] = list(opening.tokens)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        super().commit(session, length, tokens)
        assert length == len(self.tokens[session])
        self.tokens[session] += tokens

    def see(self, session: int, start: int, states: Tensor) -> None:
        rows = self.rows.setdefault(session, [])
        assert start == self.first.setdefault(session, start) + sum(map(len, rows))
        rows.append(states.clone())

    def check(self, model: LlamaModel) -> None:
        """All but the last token of each sequence have the states of a forward pass over the whole sequence."""
        for session, rows in self.rows.items():
            first, before = self.first[session], self.tokens[session][:-1]
            expected = states_of(model, before, self.traits.layers)[first:]
            torch.testing.assert_close(torch.cat(rows), expected, rtol=1e-5, atol=1e-5)


def states_of(model: LlamaModel, tokens: Sequence[int], layers: tuple[int, ...]) -> Tensor:
    """The states of ``layers`` in one forward pass over ``tokens``."""
    pages = range(-(-len(tokens) // 8))
    batch = RaggedBatch.build([SequenceRows(len(tokens), 0, pages)], 8)
    states = torch.empty(len(tokens), len(layers), model.config.hidden_size)
    model.forward(torch.tensor(tokens), batch, model.new_pool(len(pages), 8), layers, states)
    return states


class Named(EverythingDrafter):
    """Notes the sequences that it guesses for."""

    name = "named"

    def __init__(self, vocabulary: int) -> None:
        super().__init__(vocabulary, 1)
        self.openings: list[Opening] = []

    def open(self, session: int, opening: Opening) -> None:
        super().open(session, opening)
        self.openings.append(opening)

    @property
    def tenants(self) -> set[str]:
        """Their tenants."""
        return {opening.tenant for opening in self.openings}


STEP_S = 0.004
"""Seconds of a step beside `Timed`."""


class Clock:
    """The engine's clock: only a test advances it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        """Advances the clock."""
        self.now += seconds


class Timed(Named):
    """Takes time on a clock for each draft, and guesses right, or nothing."""

    name = "timed"

    def __init__(self, vocabulary: int, clock: Clock, seconds: float, *, right: bool = True) -> None:
        super().__init__(vocabulary)
        self.clock, self.seconds, self.right = clock, seconds, right

    def draft(self) -> list[tuple[int, DraftTree]]:
        self.clock.spend(self.seconds)
        return super().draft() if self.right else []
