"""Trees of guesses from a compiled decoder: sessions, growth and ranking in calls that hold no lock of Python's."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np
from outrider.kernels.native.build import brief
from outrider.kernels.native.decoder import Model, NativeDecoder
from outrider.kernels.pool import KvPool
from outrider.kernels.race_sample import Truncation

MOST_CHILDREN = 16
_BRIEF = 1 << 26
"""Products, rows times weights, up to which a call keeps the interpreter's lock: about half a millisecond's work."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """How trees grow.

    Attributes:
        children: guesses below each node, up to `MOST_CHILDREN`.
        rows: nodes grown in one run of the model, over all sequences.
        rows_each: nodes grown in one run for a sequence.
        ahead: most grown nodes of a sequence.
        prefill_rows: prompt tokens in one run.
        context_length: longest sequence that is guessed at.
        least_value: a node less likely than this is neither grown nor told.
        row_cost: what a row adds to a run, of what the first row takes; nodes that bring less than that are not grown.
    """

    children: int
    rows: int
    rows_each: int
    ahead: int
    prefill_rows: int
    context_length: int
    least_value: float
    row_cost: float = 0.0


class DraftPrice(NamedTuple):
    """What guesses have to bring so that they pay, in tokens; zeros where drafting costs nothing.

    Attributes:
        guess: of a guess that is verified: a node less likely than this is not grown.
        second: of a second spent on drafting: a run is made where the nodes that it grows are together likely enough.
    """

    guess: float = 0.0
    second: float = 0.0


FREE = DraftPrice()


class Grown(NamedTuple):
    """A session's tree behind the first ``length`` tokens of its sequence, parents before their children."""

    number: int
    length: int
    tokens: list[int]
    parents: list[int]
    confidences: list[float]


class _Shape(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("children", "rows", "rows_each", "ahead", "prefill_rows")),
        *((name, c_int32) for name in ("pages", "page_size", "context_length")),
        ("least_value", c_float),
        ("row_cost", c_float),
    )


class _Opening(Structure):
    _fields_ = (
        ("number", c_int64),
        ("seed", c_uint64),
        ("tokens", c_void_p),
        ("count", c_int32),
        ("most", c_int32),
        *((name, c_float) for name in ("temperature", "top_p", "min_p")),
        ("top_k", c_int32),
    )


_TREE = np.dtype([("number", np.int64), *((name, np.int32) for name in ("length", "first", "count"))], align=True)


class _Price(Structure):
    _fields_ = (("guess", c_float), ("second", c_float))


class _Nodes(Structure):
    _fields_ = (("tokens", c_void_p), ("parents", c_void_p), ("confidences", c_void_p))


class NativeDrafts:
    """What a small model guesses behind many sequences. Called from one thread.

    Args:
        decoder: the model.
        pool: empty pages of its kind.
        shape: how trees grow.

    Raises:
        ValueError: the pool is not of the decoder's kind, or the shape has more children than there is room for.
    """

    def __init__(self, decoder: NativeDecoder, pool: KvPool, shape: DraftShape) -> None:
        decoder.check(pool)
        if not 1 <= shape.children <= MOST_CHILDREN:
            raise ValueError(f"{shape.children} children; there may be 1 to {MOST_CHILDREN}")
        self._decoder, self._pool = decoder, pool
        self._library, self._lasting = _typed(brief(decoder.library)), _typed(decoder.library)
        self._shape, self._weights, self._new_rows = shape, _weights(decoder.model), 0
        *counts, context_length, least_value, row_cost = astuple(shape)
        inner = _Shape(*counts, pool.pages, pool.page_size, context_length, least_value, row_cost)
        self._handle = self._library.outrider_drafts_new(
            decoder.handle, decoder.model, inner, pool.data.data_ptr(), pool.data.stride(0)
        )
        weakref.finalize(self, self._library.outrider_drafts_free, self._handle)
        self._open: set[int] = set()
        self._price = _Price()
        self._make_room(0, 0)

    def open(
        self, number: int, tokens: Sequence[int], most: int, seed: int, temperature: float, truncation: Truncation
    ) -> None:
        """Starts a session, in place of one of the same number.

        Args:
            number: of the session.
            tokens: so far.
            most: the largest tree that is of use.
            seed: of the target's dice; without meaning where ``temperature`` is 0.
            temperature: of the target's draws.
            truncation: likewise.
        """
        ids = np.array(tokens, np.int32)
        self._open.add(number)
        self._new_rows += len(ids)
        opening = _Opening(
            number, seed, ids.ctypes.data, len(ids), most, temperature, truncation.top_p, truncation.min_p,
            truncation.top_k,
        )  # fmt: skip
        self._library.outrider_drafts_open(self._handle, byref(opening))

    def commit(self, number: int, length: int, tokens: Sequence[int]) -> None:
        """``tokens`` were decided behind ``length`` others; a session that has another length ends."""
        ids = array("i", tokens)
        self._new_rows += len(ids)
        self._library.outrider_drafts_commit(self._handle, number, length, ids.buffer_info()[0], len(ids))

    def close(self, number: int) -> None:
        """Ends a session, if there is one of this number."""
        self._open.discard(number)
        self._library.outrider_drafts_close(self._handle, number)

    def rest(self, number: int) -> None:
        """Drafts nothing more for a session until tokens are decided again."""
        self._library.outrider_drafts_rest(self._handle, number)

    @property
    def free_pages(self) -> int:
        """Pages that no session holds."""
        free: int = self._library.outrider_drafts_free_pages(self._handle)
        return free

    @property
    def reading(self) -> bool:
        """Whether a session has decided tokens that the model has not run on."""
        return bool(self._library.outrider_drafts_reading(self._handle))

    def draft(self, rounds: int, most: int, price: DraftPrice = FREE) -> list[Grown]:
        """Runs the model up to ``rounds`` times, where it pays; the trees that are better now, of up to ``most`` nodes.

        Other threads run meanwhile, unless there is little to do.
        """
        room, self._price.guess, self._price.second = len(self._open), *price
        if room > len(self._trees) or room * most > len(self._reals):
            self._make_room(2 * room, 2 * room * most)
        library = self._library if self._products(rounds, room) <= _BRIEF else self._lasting
        self._new_rows -= min(self._new_rows, self._shape.prefill_rows)
        count = library.outrider_drafts_draft(self._handle, rounds, most, self._price, self._told, self._nodes)
        return self._read(self._trees[:count].tolist()) if count else []

    def _read(self, trees: list[tuple[int, int, int, int]]) -> list[Grown]:
        """The trees of these numbers, lengths, first nodes and nodes, which lie one behind the other."""
        *_, first, nodes = trees[-1]
        tokens, parents = self._words[:, : first + nodes].tolist()
        confidences, grown = self._reals[: first + nodes].tolist(), []
        for number, length, first, nodes in trees:
            end = first + nodes
            grown.append(Grown(number, length, tokens[first:end], parents[first:end], confidences[first:end]))
        return grown

    def _products(self, rounds: int, sessions: int) -> int:
        """Of rows and weights, at most, in a call."""
        grown = rounds * min(self._shape.rows, sessions * self._shape.rows_each)
        return (grown + min(self._new_rows, rounds * self._shape.prefill_rows)) * self._weights

    def _make_room(self, trees: int, nodes: int) -> None:
        self._trees, self._words = np.empty(trees, _TREE), np.empty((2, nodes), np.int32)
        self._reals = np.empty(nodes, np.float32)
        self._told = self._trees.ctypes.data
        self._nodes = _Nodes(*(part.ctypes.data for part in (*self._words, self._reals)))


def _weights(model: Model) -> int:
    """Of the products that each row goes through."""
    products = [model.logits]
    for layer in model.layer[: model.layers]:
        products += [layer.qkv, layer.output, layer.gate_up, layer.down]
    return sum(each.n * each.k for each in products)


def _typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of what is called here."""
    loaded.outrider_drafts_new.argtypes = (c_void_p, POINTER(Model), POINTER(_Shape), c_void_p, c_int64)
    loaded.outrider_drafts_new.restype = c_void_p
    loaded.outrider_drafts_free.argtypes = (c_void_p,)
    loaded.outrider_drafts_open.argtypes = (c_void_p, POINTER(_Opening))
    loaded.outrider_drafts_free_pages.argtypes = (c_void_p,)
    loaded.outrider_drafts_reading.argtypes = (c_void_p,)
    loaded.outrider_drafts_rest.argtypes = (c_void_p, c_int64)
    loaded.outrider_drafts_close.argtypes = (c_void_p, c_int64)
    loaded.outrider_drafts_commit.argtypes = (c_void_p, c_int64, c_int32, c_void_p, c_int32)
    loaded.outrider_drafts_draft.argtypes = (*(c_void_p, c_int32, c_int32, POINTER(_Price), c_void_p, POINTER(_Nodes)),)
    return loaded
