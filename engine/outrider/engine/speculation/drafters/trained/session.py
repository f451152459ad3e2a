"""A sequence as the drafter of a head knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation.drafters.trained.key_cache import KeyCache
from outrider.engine.speculation.trees.guess_tree import GuessTree
from torch import Tensor

_AT_ONCE = 64
"""States that are projected when they come; fewer wait for the next draft, where one matmul takes those of all."""


@dataclass(slots=True, eq=False)
class Session:
    """A sequence: its tokens, the states of all but the newest, and a tree behind it.

    Attributes:
        tokens: prompt and answer so far.
        dice: None for a greedy request.
        max_nodes: most nodes of a tree.
        cache: keys and values of the states that were read.
        first: place of the first token with states; None before there are any.
        features: what the head makes of states that are not read, [rows, hidden_size] each.
        states: states that are not read nor projected.
        unread: rows of both.
        unprojected: rows of ``states``.
        tree: grown since the last commit.
        root: the head's state at the newest token, of EAGLE.
        top: the likeliest first guess; None before a draft.
        drafted: whether there was a draft since the last commit.
        resting: whether the policy leaves the sequence out until the next commit.
    """

    number: int
    tokens: list[int]
    sampling: Sampling
    dice: Dice | None
    max_nodes: int
    cache: KeyCache
    first: int | None = None
    features: list[Tensor] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    unread: int = 0
    unprojected: int = 0
    tree: GuessTree = field(default_factory=GuessTree)
    root: Tensor | None = None
    top: int | None = None
    drafted: bool = False
    resting: bool = False

    @property
    def seen(self) -> int:
        """Place behind the last token with states."""
        return (self.first or 0) + self.cache.length + self.unread

    @property
    def is_due(self) -> bool:
        """Whether all states are there that a draft needs, and none was made of them."""
        return self.first is not None and self.seen == len(self.tokens) - 1 and not (self.drafted or self.resting)

    def commit(self, tokens: Sequence[int]) -> None:
        """Appends decided tokens; the tree behind the old ones is no more."""
        self.tokens.extend(tokens)
        self.tree, self.root, self.top, self.drafted, self.resting = GuessTree(), None, None, False, False

    def see(self, start: int, states: Tensor, project: Callable[[Tensor], Tensor]) -> bool:
        """Takes states [rows, layers, hidden_size] from the place ``start`` on; False if others are missing before."""
        if self.first is None:
            self.first = start
        elif start != self.seen:
            return False
        self.unread += len(states)
        if not self.states and len(states) >= _AT_ONCE:
            self.features.append(project(states))
            return True
        self.states.append(states.clone())  # not a view that keeps those of a whole step
        self.unprojected += len(states)
        if self.unprojected >= _AT_ONCE:
            self.add(project(torch.cat(self.states)))
        return True

    def add(self, features: Tensor) -> None:
        """Takes the features of all states that are not projected."""
        self.features.append(features)
        self.states.clear()
        self.unprojected = 0

    def take(self, most: int) -> Tensor:
        """The first unread features, at most ``most`` rows; all states must be projected."""
        rows = self.features[0] if len(self.features) == 1 else torch.cat(self.features)
        self.features = [rows[most:]] if len(rows) > most else []
        self.unread -= min(most, len(rows))
        return rows[:most]
