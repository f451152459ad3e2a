"""Trees of guesses as the library writes them."""

from __future__ import annotations

from typing import NamedTuple

from outrider.native.library import ffi, pointer_value


class NativeTree(NamedTuple):
    """A session's tree behind the first ``length`` tokens of its sequence, parents before their children."""

    number: int
    length: int
    tokens: list[int]
    parents: list[int]
    confidences: list[float]


class TreeBuffer:
    """A buffer that the library writes trees to.

    Attributes:
        out: address of the ``outrider_trees``.
    """

    def __init__(self) -> None:
        self._trees_most = self._nodes_most = -1
        self.reserve(0, 0)

    def reserve(self, trees: int, nodes: int) -> None:
        """Makes room for ``trees`` trees of ``nodes`` nodes together. Earlier contents are lost."""
        if trees <= self._trees_most and nodes <= self._nodes_most:
            return
        self._trees_most, self._nodes_most = 2 * trees, 2 * nodes
        self._trees = ffi.new("outrider_tree[]", 2 * trees)
        self._tokens, self._parents = (ffi.new("int32_t[]", 2 * nodes) for _ in range(2))
        self._confidences = ffi.new("double[]", 2 * nodes)
        self._inner = ffi.new("outrider_trees *", (self._trees, self._tokens, self._parents, self._confidences, 0))
        self.out = pointer_value(self._inner)

    def read(self) -> list[NativeTree]:
        """The trees that the library wrote last."""
        count = self._inner.count
        if not count:
            return []
        last = self._trees[count - 1]
        size = last.first + last.nodes
        columns = [ffi.unpack(each, size) if size else [] for each in (self._tokens, self._parents, self._confidences)]
        tokens, parents, confidences = columns
        drafts = []
        for tree in ffi.unpack(self._trees, count):
            span = slice(tree.first, tree.first + tree.nodes)
            drafts.append(NativeTree(tree.number, tree.length, tokens[span], parents[span], confidences[span]))
        return drafts
