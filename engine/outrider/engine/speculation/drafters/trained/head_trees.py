"""Trees of a head: states are read as they come, and the likeliest nodes grow first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

from outrider.engine.speculation.drafters.trained.session import Session
from outrider.engine.speculation.trees.price import RoundPrice
from outrider.engine.speculation.trees.ranking import Guesses, Rows, rank
from torch import Tensor

Part = tuple[Session, list[int]]
"""Nodes of a session's tree that grow; -1 is the newest token."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How trees grow.

    Attributes:
        children: guesses below each node; 1 makes chains.
        rounds: times that nodes grow, and so the depth of a tree; a block of fewer guesses ends before.
        rows: nodes of a session grown in a round.
        nodes: most nodes of a tree.
        least_value: least probability of a node that is grown or sent.
        row_cost: see `outrider.engine.speculation.trees.shape.TreeShape`.
    """

    children: int = 4
    rounds: int = 5
    rows: int = 4
    nodes: int = 24
    least_value: float = 0.02
    row_cost: float = 0.1


class HeadTrees(ABC):
    """Reads states and grows trees, for all sessions at a time.

    Args:
        growth: how trees grow.
        depth: most guesses of a path.
        targets: the target's ids of the head's; None for equal ids.
        context_length: longest sequence to guess for, in tokens.

    Attributes:
        price: what a round has to bring.
    """

    def __init__(self, growth: Growth, depth: int, targets: Tensor | None, context_length: int) -> None:
        self.price = RoundPrice()
        self._growth, self._depth, self._targets, self._context_length = growth, depth, targets, context_length

    @abstractmethod
    def project(self, states: Tensor) -> Tensor:
        """What the head makes of the target's states [rows, layers, hidden_size]."""

    @abstractmethod
    def read(self, parts: Sequence[tuple[Session, Tensor]]) -> None:
        """Adds the keys and values of sessions' next features [rows, hidden_size] to their caches."""

    @abstractmethod
    def begin(self, sessions: Sequence[Session]) -> None:
        """Prepares the growth of sessions whose states are all read."""

    @abstractmethod
    def expand(self, parts: Sequence[Part]) -> None:
        """Adds children below nodes."""

    def close(self, session: Session) -> None:  # noqa: B027
        """Frees what is kept of a session that ends."""

    def grow(self, sessions: Sequence[Session]) -> None:
        """Grows a tree behind each session's newest token."""
        self.begin(sessions)
        self.expand([(session, [-1]) for session in sessions])
        for _ in range(min(self._growth.rounds, self._depth) - 1):
            parts = [part for session in sessions if (part := self._frontier(session))[1]]
            if not parts:
                return self.price.skip()
            began = perf_counter()
            self.expand(parts)
            self.price.learn((perf_counter() - began) / len(parts))

    def _frontier(self, session: Session) -> Part:
        growth, tree = self._growth, session.tree
        depth = min(growth.rounds, self._depth, self._context_length - len(session.tokens))
        nodes = tree.frontier(growth.rows, growth.least_value, depth)
        nodes = [node for node in nodes if tree.nodes[node].value >= self.price.least_value(tree.nodes[node].depth + 1)]
        nodes = nodes[: tree.worth_growing(nodes, growth.row_cost)]
        for node in nodes:
            tree.grow(node)
        return session, nodes

    def rank(self, parts: Sequence[tuple[Session, Sequence[int]]], scores: Tensor) -> list[list[Guesses]]:
        """The best children of sessions' rows behind nodes of those depths; see `ranking.rank`."""
        rows = [Rows(s.sampling, s.dice, [len(s.tokens) + depth for depth in depths]) for s, depths in parts]
        return rank(rows, scores, self._growth.children, self._targets)


def depths_of(session: Session, nodes: Iterable[int]) -> list[int]:
    """The depth of each node; 0 for the newest token."""
    return [session.tree.nodes[node].depth if node >= 0 else 0 for node in nodes]


def tokens_of(session: Session, nodes: Iterable[int]) -> list[int]:
    """The token of each node."""
    return [session.tree.nodes[node].token if node >= 0 else session.tokens[-1] for node in nodes]
