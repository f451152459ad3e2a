"""Which guesses a step verifies, by the compiled library: all sequences' trees in, the bought ones out, in one call."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Iterator, Sequence
from ctypes import c_double, c_int32, c_int64, c_void_p
from typing import NamedTuple

from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, brief, library

EDGES = 15
"""Bounds between bins of confidence."""
_TERMS, _HEAD, _COLUMNS, _CELL = 4, 3, 6, 3


class BoughtTree(NamedTuple):
    """The guesses of one sequence; a parent stands before its children.

    Attributes:
        tokens: guessed; without meaning for a sequence that was ready, as are depths, drafters, firsts, confidences.
        parents: index of each node's parent, -1 at the top.
        depths: 1 at the top.
        drafters: who guessed each node with the highest value.
        firsts: whose tree, of those that have the node, came first.
        nodes: index of each among all that the sequence could have bought.
        values: probability that the whole path to each is right.
        confidences: each node's own, as its drafter gave it.
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    drafters: list[int]
    firsts: list[int]
    nodes: list[int]
    values: list[float]
    confidences: list[float]


class Bought(NamedTuple):
    """The guesses of a step.

    Attributes:
        trees: each sequence's; None where it has none.
        dead: trees, in the order in which they were given, in which nothing hangs from the sequence's end.
        cells: drafter, depth and number of the guesses that could have been bought of sequences that were not ready.
    """

    trees: list[BoughtTree | None]
    dead: list[int]
    cells: Iterator[tuple[int, int, int]]


class Merging:
    """Sequences and their trees are given one after another, then bought for. Called from one thread.

    Args:
        edges: `EDGES` ascending confidences; those of a bin are at most its upper edge.
        loaded: the library.
    """

    def __init__(self, edges: Sequence[float], loaded: ctypes.CDLL) -> None:
        if len(edges) != EDGES:
            raise ValueError(f"{len(edges)} edges; there have to be {EDGES}")
        self._library = _typed(brief(loaded))
        self._handle = self._library.outrider_merging_new((c_double * EDGES)(*edges))
        weakref.finalize(self, self._library.outrider_merging_free, self._handle)
        self._drafters = 0
        self._sequences, self._trees = 0, 0
        self._words, self._confidences = [0] * _TERMS, list[float]()
        self._make_room(0, 0)

    def drafter(self, plain: int, greedy: int) -> int:
        """The number of one more drafter.

        Args:
            plain: address of `EDGES` + 1 float64 probabilities, which outlive this: what a confidence in each bin is
                worth at sequences that are not greedy.
            greedy: the same for those that are.
        """
        number, self._drafters = self._drafters, self._drafters + 1
        self._library.outrider_merging_rates(self._handle, number, 0, plain)
        self._library.outrider_merging_rates(self._handle, number, 1, greedy)
        return number

    def sequence(self, trees: int, depth: int, cap: int, tenant: int, greedy: bool) -> None:
        """The next sequence.

        Args:
            trees: how many of it follow.
            depth: deeper guesses are left out.
            cap: most guesses.
            tenant: number of whose it is.
            greedy: whether it is decided greedily.
        """
        self._sequences += 1
        self._trees += trees
        self._words += trees, depth, cap, tenant, greedy

    def tree(
        self,
        drafter: int,
        tokens: Sequence[int],
        parents: Sequence[int],
        confidences: Sequence[float],
        decided: Sequence[int],
    ) -> None:
        """The next tree of a sequence. A guess that several have is one, with the highest of their values.

        Args:
            drafter: number of who guessed.
            tokens: guessed token of each node.
            parents: index of each node's parent, which stands before it; -1 at the top.
            confidences: of each node, given that its parent is right.
            decided: tokens of the sequence behind the place from which the tree hangs.
        """
        words = self._words
        words += len(tokens), len(decided), drafter
        words += tokens
        words += parents
        words += decided
        self._confidences += confidences

    def ready(self, parents: Sequence[int], values: Sequence[float], cap: int, tenant: int) -> None:
        """The next sequence, which has one tree that is taken as it stands, with ``values`` of whole paths."""
        self._sequences += 1
        self._words += -1, 0, cap, tenant, 0, len(parents), 0, 0
        self._words += parents
        self._confidences += values

    def buy(
        self, seconds: int, least: float, surcharge: float, limit: int, tenants: int = 0, tenant_cap: int = 0
    ) -> Bought:
        """What to verify of all that was given since the last call.

        Args:
            seconds: address of float64 seconds of the step, by the number of its guesses from 0 to ``limit``.
            least: value below which no guess is looked at.
            surcharge: factor on the seconds of a step with guesses, beside one without.
            limit: most guesses in the step.
            tenants: above the numbers of all tenants.
            tenant_cap: most guesses of one tenant, 0 for any number.
        """
        count, nodes = self._sequences, len(self._confidences)
        self._words[:_TERMS] = count, limit, tenants, tenant_cap
        words, confidences = array("i", self._words), array("d", self._confidences)
        if nodes > self._nodes or count + self._trees > self._places:
            self._make_room(2 * nodes, 2 * (count + self._trees))
        size = self._library.outrider_merging_buy(
            self._handle, words.buffer_info()[0], confidences.buffer_info()[0], seconds, least, surcharge, *self._room
        )
        self._sequences, self._trees, self._words, self._confidences = 0, 0, [0] * _TERMS, []
        return self._read(count, self._told[:size].tolist())

    def _make_room(self, nodes: int, places: int) -> None:
        self._nodes, self._places = nodes, places
        self._told = array("i", bytes(4 * (_HEAD + places + (_COLUMNS + _CELL) * nodes)))
        self._reals = array("d", bytes(16 * nodes))
        self._room = self._told.buffer_info()[0], self._reals.buffer_info()[0]

    def _read(self, count: int, words: list[int]) -> Bought:
        bought, died = words[:2]
        reals, at, place = self._reals[: 2 * bought].tolist(), _HEAD + count, 0
        trees: list[BoughtTree | None] = []
        for size in words[_HEAD:at]:
            trees.append(_tree(words, at, reals, place, size) if size else None)
            at, place = at + _COLUMNS * size, place + 2 * size
        cells = iter(words[at + died :])
        return Bought(trees, words[at : at + died], zip(cells, cells, cells, strict=True))


def _tree(words: list[int], at: int, reals: list[float], place: int, size: int) -> BoughtTree:
    """The tree of ``size`` guesses whose columns begin ``at`` a place in the words, and at another in the reals."""
    parents, depths, drafters, firsts, nodes, end = range(at + size, at + _COLUMNS * size + 1, size)
    middle = place + size
    return BoughtTree(
        words[at:parents], words[parents:depths], words[depths:drafters], words[drafters:firsts],
        words[firsts:nodes], words[nodes:end], reals[place:middle], reals[middle : middle + size],
    )  # fmt: skip


def native_merging(edges: Sequence[float]) -> Merging | None:
    """That of the library; None where it cannot be had."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return Merging(edges, library())
    except NativeUnavailable:
        return None


def _typed(loaded: ctypes.PyDLL) -> ctypes.PyDLL:
    """The library with the types of what is called here."""
    loaded.outrider_merging_new.argtypes = (c_void_p,)
    loaded.outrider_merging_new.restype = c_void_p
    loaded.outrider_merging_free.argtypes = (c_void_p,)
    loaded.outrider_merging_rates.argtypes = (c_void_p, c_int32, c_int32, c_void_p)
    loaded.outrider_merging_buy.argtypes = (
        *(c_void_p, c_void_p, c_void_p, c_void_p), c_double, c_double, c_void_p, c_void_p,
    )  # fmt: skip
    loaded.outrider_merging_buy.restype = c_int64
    return loaded
