"""Trees of guesses as the library writes them."""

from __future__ import annotations

from typing import NamedTuple

from outrider.native.library import at, ffi


class Grown(NamedTuple):
    """A session's tree behind the first ``length`` tokens of its sequence, parents before their children."""

    number: int
    length: int
    tokens: list[int]
    parents: list[int]
    confidences: list[float]


class TreeRoom:
    """Room for trees, which grows as they do.

    Attributes:
        out: where the ``outrider_trees`` to write to are.
    """

    def __init__(self) -> None:
        self._trees_most = self._nodes_most = -1
        self.make(0, 0)

    def make(self, trees: int, nodes: int) -> None:
        """Makes room for so many trees of so many nodes together. What was written before is lost."""
        if trees <= self._trees_most and nodes <= self._nodes_most:
            return
        self._trees_most, self._nodes_most = 2 * trees, 2 * nodes
        self._trees = ffi.new("outrider_tree[]", 2 * trees)
        self._tokens, self._parents = (ffi.new("int32_t[]", 2 * nodes) for _ in range(2))
        self._confidences = ffi.new("double[]", 2 * nodes)
        self._inner = ffi.new("outrider_trees *", (self._trees, self._tokens, self._parents, self._confidences))
        self.out = at(self._inner)

    def read(self, count: int) -> list[Grown]:
        """The first ``count`` trees."""
        if not count:
            return []
        last = self._trees[count - 1]
        size = last.first + last.nodes
        columns = [ffi.unpack(each, size) if size else [] for each in (self._tokens, self._parents, self._confidences)]
        tokens, parents, confidences = columns
        grown = []
        for tree in ffi.unpack(self._trees, count):
            span = slice(tree.first, tree.first + tree.nodes)
            grown.append(Grown(tree.number, tree.length, tokens[span], parents[span], confidences[span]))
        return grown
