"""A drafter that guesses at random, to show that guesses never change answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from outrider.engine.speculation.drafters.drafter import Drafter, DrafterContext, DrafterError, Opening
from outrider.engine.speculation.trees.tree import DraftTree

_NODES = 12


class RandomDrafter(Drafter):
    """Random trees with random confidences, of any shape up to 12 nodes."""

    name = "random"

    def __init__(self, context: DrafterContext) -> None:
        if context.options:
            raise DrafterError(f"the random drafter takes no options, not {', '.join(context.options)}")
        self.context_length = context.context_length
        self._vocabulary = context.vocabulary_size
        self._lengths: dict[int, int] = {}
        self._stale: set[int] = set()
        self._random = random.Random(0)

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self._lengths[session] = len(opening.tokens)
        self._stale.add(session)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Stores the new length."""
        if session in self._lengths:
            self._lengths[session] = length + len(tokens)
            self._stale.add(session)

    def close(self, session: int) -> None:
        """Forgets the sequence."""
        self._lengths.pop(session, None)
        self._stale.discard(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        """A new tree for each session with new tokens."""
        stale, self._stale = self._stale, set()
        return [(session, self._tree(self._lengths[session])) for session in sorted(stale)]

    def _tree(self, length: int) -> DraftTree:
        nodes = self._random.randint(1, _NODES)
        return DraftTree(
            length,
            [self._random.randrange(self._vocabulary) for _ in range(nodes)],
            [self._random.randint(-1, node - 1) for node in range(nodes)],
            [self._random.random() for _ in range(nodes)],
            self.name,
        )
