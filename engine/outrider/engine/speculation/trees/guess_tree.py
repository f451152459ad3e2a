"""The tree that a model drafter grows ahead of one sequence, and its part below decided tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.engine.speculation.trees.proposals import Proposal
from outrider.engine.speculation.trees.tree import DraftTree


@dataclass(slots=True)
class Node:
    """A guess.

    Attributes:
        parent: index of the parent, -1 at the top.
        value: product of the confidences on the node's path.
        depth: 1 at the top.
        row: place of the node's keys and values after the sequence's, in order of growth; -1 if not computed.
    """

    token: int
    parent: int
    confidence: float
    value: float
    depth: int
    row: int = -1


@dataclass(slots=True)
class GuessTree:
    """Guesses after one sequence. A node is *grown* when the model has run on it and its children are known.

    ``proposals`` holds the distribution that a node's children were drawn from, by node; -1 is the sequence.
    """

    nodes: list[Node] = field(default_factory=list)
    grown: list[int] = field(default_factory=list)
    proposals: dict[int, Proposal] = field(default_factory=dict)

    def add(self, parent: int, tokens: Sequence[int], confidences: Sequence[float]) -> None:
        """Adds children below ``parent``."""
        value, depth = (self.nodes[parent].value, self.nodes[parent].depth) if parent >= 0 else (1.0, 0)
        for token, confidence in zip(tokens, confidences, strict=True):
            self.nodes.append(Node(token, parent, confidence, value * confidence, depth + 1))

    def grow(self, node: int) -> None:
        """Marks ``node`` as grown: its row is the next one."""
        self.nodes[node].row = len(self.grown)
        self.grown.append(node)

    def frontier(self, most: int, least_value: float, max_depth: int) -> list[int]:
        """The ``most`` valuable nodes that are not grown, best first."""
        open_nodes = [
            (-node.value, index)
            for index, node in enumerate(self.nodes)
            if node.row < 0 and node.value >= least_value and node.depth < max_depth
        ]
        return [index for _, index in sorted(open_nodes)[:most]]

    def worth_growing(self, some: Sequence[int], row_cost: float) -> int:
        """How many of ``some`` nodes, likeliest first, give a run the most value for its time.

        A further node has to bring more value for its time than the earlier nodes together. A further row takes
        ``row_cost`` times the time of the first row.
        """
        brought = time = 0.0
        for count, node in enumerate(some):
            value = self.nodes[node].value
            if count and value * time < row_cost * brought:
                return count
            brought += value
            time += row_cost if count else 1.0
        return len(some)

    def row_parents(self) -> list[int]:
        """The row of each grown node's parent, in order; -1 at the top."""
        above = [self.nodes[index].parent for index in self.grown]
        return [self.nodes[parent].row if parent >= 0 else -1 for parent in above]

    def descend(self, tokens: Sequence[int]) -> tuple[list[int], GuessTree | None]:
        """The part of the tree below decided ``tokens``.

        Returns:
            Rows whose keys and values stay, in their new order: grown decided tokens first, then the remaining tree;
            and the remaining tree, None if the last of ``tokens`` was not grown.
        """
        path: list[int] = []
        at = -1
        for token in tokens:
            at = next((i for i, n in enumerate(self.nodes) if n.parent == at and n.token == token), -2)
            if at < 0 or self.nodes[at].row < 0:
                return path, None
            path.append(self.nodes[at].row)
        subtree, rows = self._below(at)
        return path + rows, subtree

    def _below(self, root: int) -> tuple[GuessTree, list[int]]:
        renamed, subtree, top = {root: -1}, GuessTree(), self.nodes[root]
        for index in range(root + 1, len(self.nodes)):
            node = self.nodes[index]
            if node.parent in renamed:
                renamed[index] = len(subtree.nodes)
                value = node.value / top.value if top.value > 0 else 0.0
                subtree.nodes.append(
                    Node(node.token, renamed[node.parent], node.confidence, value, node.depth - top.depth)
                )
        subtree.proposals = {renamed[node]: q for node, q in self.proposals.items() if node in renamed}
        rows = []
        for index in self.grown:
            if index in renamed and index != root:
                rows.append(self.nodes[index].row)
                subtree.grow(renamed[index])
        return subtree, rows

    def best(self, most: int, least_value: float, length: int, drafter: str) -> DraftTree:
        """The ``most`` valuable nodes of at least ``least_value``, as a draft tree after ``length`` tokens."""
        eligible = [index for index, node in enumerate(self.nodes) if node.value >= least_value]
        ranked = sorted(eligible, key=lambda index: (-self.nodes[index].value, index))
        kept = sorted(ranked[:most])
        renamed = {-1: -1} | {index: place for place, index in enumerate(kept)}
        return DraftTree(
            length,
            [self.nodes[index].token for index in kept],
            [renamed[self.nodes[index].parent] for index in kept],
            [self.nodes[index].confidence for index in kept],
            drafter,
            {renamed[node]: q for node, q in self.proposals.items() if node in renamed},
        )
