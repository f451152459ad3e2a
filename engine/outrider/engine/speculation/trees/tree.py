"""Draft trees, and the merged tree of several drafters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import ge

from outrider.engine.speculation.trees.proposals import Proposal

MOST_NODES = 63
"""Guesses of a sequence in one step: attention takes trees of 64 nodes, of which one is the last token."""
PREDICTION = "prediction"
"""Drafter of the guesses that the client itself gives: they count for it, whoever else guesses them."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Guesses that continue a sequence.

    Attributes:
        length: tokens of the sequence before the tree, prompt included.
        tokens: guessed token of each node; a parent stands before its children.
        parents: index of each node's parent; -1 is the sequence.
        confidences: estimated probability of each node given its parent, 0 to 1.
        drafter: name of the drafter.
        proposals: for drawn guesses, the distribution of each node's children, by node; -1 is the sequence. Children
            stand in the order of the draw.
    """

    length: int
    tokens: Sequence[int]
    parents: Sequence[int]
    confidences: Sequence[float]
    drafter: str
    proposals: Mapping[int, Proposal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.parents) == len(self.confidences):
            raise ValueError("a draft tree needs a parent and a confidence for each token")
        if any(map(ge, self.parents, count())) or min(self.parents, default=-1) < -1:
            raise ValueError("a node's parent must stand before it in the tree")

    def after(self, tokens: Sequence[int]) -> DraftTree | None:
        """The part of the tree below decided ``tokens``, as a tree after the longer sequence; None if empty."""
        root = -1
        for token in tokens:
            root = self._child(root, token)
            if root < 0:
                return None
        return self._below(root, len(tokens)) if tokens else self

    def _child(self, parent: int, token: int) -> int:
        for node in range(parent + 1, len(self.tokens)):
            if self.parents[node] == parent and self.tokens[node] == token:
                return node
        return -2

    def _below(self, root: int, steps: int) -> DraftTree | None:
        renamed = {root: -1}
        kept: list[int] = []
        for node in range(root + 1, len(self.tokens)):
            if self.parents[node] in renamed:
                renamed[node] = len(kept)
                kept.append(node)
        if not kept:
            return None
        return DraftTree(
            length=self.length + steps,
            tokens=[self.tokens[node] for node in kept],
            parents=[renamed[self.parents[node]] for node in kept],
            confidences=[self.confidences[node] for node in kept],
            drafter=self.drafter,
            proposals={renamed[node]: q for node, q in self.proposals.items() if node in renamed},
        )


@dataclass(slots=True)
class MergedTree:
    """The guesses of all drafters for one sequence, each once.

    Attributes:
        tokens: guessed token of each node.
        parents: index of each node's parent, -1 at the top; a parent stands before its children.
        values: estimated probability that the whole path to a node is right; never above its parent's.
        depths: 1 at the top.
        confidences: each node's confidence, as its drafter gave it.
        drafters: the drafter that gave each node its value, the highest one; `PREDICTION` for all that its tree has,
            where that is merged first.
        proposals: the distribution that a node's children were drawn from, in order; -1 is the sequence.
        firsts: the drafter whose tree brought each node first in the merge.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    drafters: list[str] = field(default_factory=list)
    proposals: dict[int, Proposal] = field(default_factory=dict)
    firsts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.firsts = self.firsts or list(self.drafters)

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, token: int, parent: int, value: float, depth: int, confidence: float, drafter: str) -> None:
        """Adds a node."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.values.append(value)
        self.depths.append(depth)
        self.confidences.append(confidence)
        self.drafters.append(drafter)
        self.firsts.append(drafter)

    def keep_order(self) -> None:
        """Lowers values so that none exceeds its parent's or an elder sibling's, which are bought first."""
        elder: dict[int, float] = {}
        for node, parent in enumerate(self.parents):
            above = self.values[parent] if parent >= 0 else 1.0
            self.values[node] = elder[parent] = min(self.values[node], above, elder.get(parent, 1.0))

    def take(self, nodes: Iterable[int]) -> MergedTree:
        """The sub-tree of ``nodes``, which must hold every node's parent; the tree itself for all its nodes."""
        kept = sorted(nodes)
        if len(kept) == len(self):
            return self
        if not kept:
            return NO_GUESSES
        renamed = {-1: -1} | {node: index for index, node in enumerate(kept)}
        return MergedTree(
            [self.tokens[n] for n in kept],
            [renamed[self.parents[n]] for n in kept],
            [self.values[n] for n in kept],
            [self.depths[n] for n in kept],
            [self.confidences[n] for n in kept],
            [self.drafters[n] for n in kept],
            {renamed[n]: q for n, q in self.proposals.items() if n in renamed},
            [self.firsts[n] for n in kept],
        )


NO_GUESSES = MergedTree()
"""The empty tree, shared: do not add nodes to it."""

Odds = Callable[[float], float]
"""Maps a drafter's confidence to the probability that such a guess is right."""


def merge(
    trees: Iterable[DraftTree],
    max_depth: int,
    odds: Callable[[str], Odds] = lambda drafter: _clip,
    least: float = 0.0,
    twins: bool = False,
) -> MergedTree:
    """Merges trees after the same sequence into one.

    A node that several drafters guessed appears once, with the highest of their values.

    Args:
        trees: trees with their drafters' confidences.
        max_depth: deeper nodes are left out.
        odds: for a drafter's name, the map from its confidences to probabilities.
        least: nodes of a lower value are left out, with all nodes below them.
        twins: keeps siblings with the same token apart, for draws with replacement.
    """
    merged = MergedTree()
    places: dict[tuple[int, int], int] = {}
    for tree in trees:
        _add(merged, places, tree, max_depth, odds(tree.drafter), least, twins)
    return merged


def _clip(confidence: float) -> float:
    return min(max(confidence, 0.0), 1.0)


def _add(
    merged: MergedTree,
    merged_places: dict[tuple[int, int], int],
    tree: DraftTree,
    max_depth: int,
    odds: Odds,
    least: float,
    twins: bool,
) -> None:
    values, depths, drafter = merged.values, merged.depths, tree.drafter
    places: list[int] = []
    for token, parent, confidence in zip(tree.tokens, tree.parents, tree.confidences, strict=True):
        above = -1 if parent < 0 else places[parent]
        depth = 1 if parent < 0 else 0 if above < 0 else depths[above] + 1
        value = odds(confidence) * (values[above] if above >= 0 else 1.0)
        if not 0 < depth <= max_depth or value < least:
            places.append(-1)
            continue
        place = len(values) if twins else merged_places.setdefault((above, token), len(values))
        places.append(place)
        if place == len(values):
            merged.append(token, above, value, depth, confidence, drafter)
        elif value > values[place]:
            values[place] = value
            if merged.drafters[place] != PREDICTION:
                merged.confidences[place], merged.drafters[place] = confidence, drafter
    for node, proposal in tree.proposals.items():
        if (place := places[node] if node >= 0 else -1) >= 0 or node < 0:
            merged.proposals.setdefault(place, proposal)
