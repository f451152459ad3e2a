"""A drafter of another package: random weights over three layers' states of all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from outrider.engine.speculation import Drafter, DrafterContext, DraftTree, Opening, Traits
from torch import Tensor


@dataclass
class Session:
    """Length of a sequence, sum of its tokens' states, and the newest ones; ``end`` is behind these."""

    length: int
    total: Tensor | float = 0.0
    newest: Tensor | None = None
    end: int = 0


class ThreeLayers(Drafter):
    """Guesses twelve tokens from the mean of all tokens' states and from the newest ones."""

    name = "three-layers"

    def __init__(self, context: DrafterContext) -> None:
        config, random = context.config, torch.Generator().manual_seed(0)
        assert config is not None
        self.traits = Traits(layers=(1, config.layers, config.layers + 1), travels=True)
        self._head = torch.randn(context.vocabulary_size, 2 * 3 * config.hidden_size, generator=random)
        self._sessions: dict[int, Session] = {}

    def open(self, session: int, opening: Opening) -> None:
        self._sessions[session] = Session(len(opening.tokens))

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        if session in self._sessions:
            self._sessions[session].length = length + len(tokens)

    def see(self, session: int, start: int, states: Tensor) -> None:
        if (state := self._sessions.get(session)) is not None:
            state.total = state.total + states.sum(0).flatten()
            state.newest, state.end = states[-1].flatten(), start + len(states)

    def close(self, session: int) -> None:
        self._sessions.pop(session, None)

    def draft(self) -> list[tuple[int, DraftTree]]:
        trees = []
        for number, s in self._sessions.items():
            if s.newest is not None and s.end == s.length - 1:
                scores = self._head @ torch.cat([s.total / s.end, s.newest])
                guesses = scores.topk(12).indices.tolist()
                trees.append((number, DraftTree(s.length, guesses, [-1] * 12, [0.9] * 12, self.name)))
                s.newest = None
        return trees
