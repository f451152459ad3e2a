"""Guesses from suffix automata: all sessions of a step in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outrider.native.library import Library, at, ffi
from outrider.native.trees import Grown, TreeRoom


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


class NativeSuffixes:
    """One tree a sequence, of those that moved on. Called from one thread.

    Args:
        shape: positive numbers, below 2**31.
        library: the compiled one.
    """

    def __init__(self, shape: SuffixShape, library: Library) -> None:
        self._nodes = shape.nodes
        kept = {name: number for name, number in asdict(shape).items() if name != "nodes"}
        functions = library.functions
        made = functions.outrider_suffixes_new(ffi.new("outrider_suffix_shape *", kept))
        self._kept = ffi.gc(made, functions.outrider_suffixes_free)
        self._handle = at(self._kept)
        self._bytes = library.brief("outrider_suffixes_bytes")
        self._start, self._end = library.brief("outrider_suffixes_open"), library.brief("outrider_suffixes_close")
        self._commit, self._write = (library.brief(f"outrider_suffixes_{name}") for name in ("commit", "write"))
        self._open: dict[int, int] = {}
        self._numbers, self._counts, self._tokens = list[int](), list[int](), list[int]()
        self._room = TreeRoom()

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
        ids, name = ffi.new("int32_t[]", list(tokens)), tenant.encode()
        opening: dict[str, Any] = {"number": number, "tokens": ids, "count": len(tokens), "prompt": prompt}
        opening |= {"tenant": ffi.from_buffer(name), "tenant_size": len(name), "most": self._open[number]}
        inner = ffi.new("outrider_suffix_opening *", opening)
        self._start(self._handle, at(inner))

    def commit(self, number: int, tokens: Sequence[int]) -> None:
        """``tokens`` were decided; nothing happens where there is no such session."""
        if number in self._open:
            self._numbers.append(number)
            self._counts.append(len(tokens))
            self._tokens += tokens

    def close(self, number: int) -> None:
        """Ends a session, if there is one of this number; its answer is remembered for the tenant's later ones."""
        if number in self._open:
            self._flush()
            del self._open[number]
            self._end(self._handle, number)

    @property
    def bytes(self) -> int:
        """Memory that sequences and answers take."""
        held: int = self._bytes(self._handle)
        return held

    def draft(self) -> list[Grown]:
        """Takes in what is new, a bounded number of tokens; the trees of sessions that have moved on."""
        self._flush()
        self._room.make(len(self._open), sum(self._open.values()))
        return self._room.read(self._write(self._handle, self._room.out))

    def _flush(self) -> None:
        if not self._numbers:
            return
        numbers, counts = ffi.new("int64_t[]", self._numbers), ffi.new("int32_t[]", self._counts)
        tokens, size = ffi.new("int32_t[]", self._tokens), len(self._numbers)
        commits = ffi.new("outrider_suffix_commits *", (numbers, counts, tokens, size))
        self._commit(self._handle, at(commits))
        self._numbers, self._counts, self._tokens = [], [], []
