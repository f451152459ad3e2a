"""Guesses from suffix automata by the compiled library: all sessions of a step in one call without Python's lock."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from outrider.kernels.backend import choice
from outrider.kernels.native.build import NativeUnavailable, brief, library
from outrider.kernels.native.drafts import Grown


@dataclass(frozen=True, slots=True)
class SuffixShape:
    """How sequences are guessed at, and how much of answers is remembered.

    Attributes:
        nodes: most guesses of a tree.
        least_match: tokens that must have stood there before.
        tokens: of a tenant's answers that are remembered, about; the oldest are forgotten.
        tenants: that are remembered; the longest silent is forgotten.
    """

    nodes: int = 16
    least_match: int = 1
    tokens: int = 16384
    tenants: int = 32


class _Shape(Structure):
    _fields_ = tuple((name, c_int32) for name in ("least_match", "tokens", "tenants"))


class _Opening(Structure):
    _fields_ = (
        ("number", c_int64),
        ("tokens", c_void_p),
        ("tenant", c_char_p),
        *((name, c_int32) for name in ("count", "prompt", "most", "tenant_size")),
    )


class _Commits(Structure):
    _fields_ = (*((name, c_void_p) for name in ("numbers", "counts", "tokens")), ("size", c_int64))


class _Trees(Structure):
    _fields_ = tuple((name, c_void_p) for name in ("heads", "tokens", "parents", "confidences"))


class _Room(NamedTuple):
    heads: NDArray[np.int64]
    tokens: NDArray[np.int32]
    parents: NDArray[np.int32]
    confidences: NDArray[np.float64]

    @classmethod
    def of(cls, trees: int, nodes: int) -> _Room:
        tokens, parents = np.empty((2, nodes), np.int32)
        return cls(np.empty((trees, 3), np.int64), tokens, parents, np.empty(nodes))


class NativeSuffixes:
    """One tree a sequence, of those that moved on. Called from one thread.

    Args:
        shape: positive numbers, below 2**31.
        loaded: the library.
    """

    def __init__(self, shape: SuffixShape, loaded: ctypes.CDLL) -> None:
        self._library, self._nodes = _typed(brief(loaded)), shape.nodes
        self._handle = self._library.outrider_suffixes_new(_Shape(shape.least_match, shape.tokens, shape.tenants))
        weakref.finalize(self, self._library.outrider_suffixes_free, self._handle)
        self._open: dict[int, int] = {}
        self._numbers, self._counts, self._tokens = array("q"), array("i"), array("i")
        self._make_room(0, 0)

    def open(self, number: int, tokens: Sequence[int], prompt: int, tenant: str, most: int) -> None:
        """Starts a session, in place of one of the same number.

        Args:
            number: of the session.
            tokens: so far.
            prompt: how many of them are the prompt.
            tenant: whose it is.
            most: the largest tree that is of use.
        """
        self._flush()
        self._open[number] = min(self._nodes, max(most, 0))
        ids, name = np.array(tokens, np.int32), tenant.encode()
        opening = _Opening(number, ids.ctypes.data, name, len(ids), prompt, self._open[number], len(name))
        self._library.outrider_suffixes_open(self._handle, byref(opening))

    def commit(self, number: int, tokens: Sequence[int]) -> None:
        """``tokens`` were decided; nothing happens where there is no such session."""
        if number in self._open:
            self._numbers.append(number)
            self._counts.append(len(tokens))
            self._tokens.extend(tokens)

    def close(self, number: int) -> None:
        """Ends a session, if there is one of this number; its answer is remembered for the tenant's later ones."""
        if number in self._open:
            self._flush()
            del self._open[number]
            self._library.outrider_suffixes_close(self._handle, number)

    @property
    def bytes(self) -> int:
        """Memory that sequences and answers take."""
        held: int = self._library.outrider_suffixes_bytes(self._handle)
        return held

    def draft(self) -> list[Grown]:
        """Takes in what is new, a bounded number of tokens; the trees of sessions that have moved on."""
        trees_most, nodes_most = len(self._open), sum(self._open.values())
        if len(self._room.heads) < trees_most or len(self._room.tokens) < nodes_most:
            self._make_room(2 * trees_most, 2 * nodes_most)
        count = self._library.outrider_suffixes_draft(self._handle, byref(self._commits()), byref(self._trees))
        self._forget()
        return self._read(count)

    def _make_room(self, trees: int, nodes: int) -> None:
        self._room = _Room.of(trees, nodes)
        self._trees = _Trees(*(part.ctypes.data for part in self._room))

    def _read(self, count: int) -> list[Grown]:
        heads: list[tuple[int, int, int]] = self._room.heads[:count].tolist()
        size = sum(head[2] for head in heads)
        tokens, parents, confidences = (part[:size].tolist() for part in self._room[1:])
        grown, first = [], 0
        for number, length, nodes in heads:
            end = first + nodes
            grown.append(Grown(number, length, tokens[first:end], parents[first:end], confidences[first:end]))
            first = end
        return grown

    def _commits(self) -> _Commits:
        parts = (part.buffer_info()[0] for part in (self._numbers, self._counts, self._tokens))
        return _Commits(*parts, len(self._numbers))

    def _flush(self) -> None:
        self._library.outrider_suffixes_commit(self._handle, byref(self._commits()))
        self._forget()

    def _forget(self) -> None:
        for part in (self._numbers, self._counts, self._tokens):
            del part[:]


def native_suffixes(shape: SuffixShape) -> NativeSuffixes | None:
    """Those of the library; None where it cannot be had."""
    if choice() not in ("auto", "native"):
        return None
    try:
        return NativeSuffixes(shape, library())
    except NativeUnavailable:
        return None


def _typed(loaded: ctypes.PyDLL) -> ctypes.PyDLL:
    """The library with the types of what is called here."""
    loaded.outrider_suffixes_new.argtypes = (POINTER(_Shape),)
    loaded.outrider_suffixes_new.restype = c_void_p
    loaded.outrider_suffixes_free.argtypes = (c_void_p,)
    loaded.outrider_suffixes_open.argtypes = (c_void_p, POINTER(_Opening))
    loaded.outrider_suffixes_commit.argtypes = (c_void_p, POINTER(_Commits))
    loaded.outrider_suffixes_close.argtypes = (c_void_p, c_int64)
    loaded.outrider_suffixes_draft.argtypes = (c_void_p, POINTER(_Commits), POINTER(_Trees))
    loaded.outrider_suffixes_draft.restype = c_int64
    loaded.outrider_suffixes_bytes.argtypes = (c_void_p,)
    loaded.outrider_suffixes_bytes.restype = c_int64
    return loaded
