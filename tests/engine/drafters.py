"""Drafters for tests: one that guesses everything, so that every row of every tree counts."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.engine.speculation import DraftTree, Opening


class EverythingDrafter:
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


class Bargainer(EverythingDrafter):
    """Notes the prices that it gets."""

    def __init__(self, vocabulary: int, depth: int) -> None:
        super().__init__(vocabulary, depth)
        self.prices: list[tuple[float, float]] = []

    def price(self, guess: float, second: float) -> None:
        self.prices.append((guess, second))
