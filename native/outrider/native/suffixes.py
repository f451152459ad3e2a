"""Guesses from suffix automata, for all sessions in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outrider.native.library import Library, checked, ffi, pointer_value
from outrider.native.trees import NativeTree, TreeBuffer


@dataclass(frozen=True, slots=True)
class SuffixShape:
    """How trees are guessed, and how many answers are remembered.

    Attributes:
        nodes: most guesses of a tree.
        least_match: latest tokens that must have occurred before.
        tokens: of a tenant's answers that are remembered, approximately; the oldest are forgotten.
        tenants: that are remembered; the one without requests for longest is forgotten.
    """

    nodes: int = 16
    least_match: int = 1
    tokens: int = 16384
    tenants: int = 32


class NativeSuffixes:
    """Trees for sequences whose tokens have changed. Called from one thread.

    A call that finds no memory raises `MemoryError`, all sessions end, and all answers are forgotten.

    Args:
        shape: positive numbers, below 2**31.
        library: the compiled library.
    """

    def __init__(self, shape: SuffixShape, library: Library) -> None:
        self._nodes = shape.nodes
        fields = {name: number for name, number in asdict(shape).items() if name != "nodes"}
        functions = library.functions
        made = ffi.new("outrider_suffixes **")
        checked(functions.outrider_suffixes_new(ffi.new("outrider_suffix_shape *", fields), made))
        self._kept = ffi.gc(made[0], functions.outrider_suffixes_free)
        self._handle = pointer_value(self._kept)
        self._bytes = library.brief_function("outrider_suffixes_bytes")
        self._start, self._end = (
            library.brief_function("outrider_suffixes_open"),
            library.brief_function("outrider_suffixes_close"),
        )
        self._commit, self._write, self._forget = (
            library.brief_function(f"outrider_suffixes_{name}") for name in ("commit", "write", "forget")
        )
        self._open: dict[int, int] = {}
        self._owners: dict[int, str] = {}
        self._numbers, self._counts, self._tokens = list[int](), list[int](), list[int]()
        self._buffer = TreeBuffer()

    def open(self, number: int, tokens: Sequence[int], prompt: int, tenant: str, most: int) -> None:
        """Starts a session, in place of one of the same number.

        Args:
            number: of the session.
            tokens: of the sequence so far.
            prompt: how many of them are the prompt.
            tenant: the sequence's tenant.
            most: nodes of the largest useful tree.
        """
        self._flush()
        self._open[number], self._owners[number] = min(self._nodes, max(most, 0)), tenant
        ids, name = ffi.new("int32_t[]", list(tokens)), tenant.encode()
        opening: dict[str, Any] = {"number": number, "tokens": ids, "count": len(tokens), "prompt": prompt}
        opening |= {"tenant": ffi.from_buffer(name), "tenant_size": len(name), "most": self._open[number]}
        inner = ffi.new("outrider_suffix_opening *", opening)
        checked(self._start(self._handle, pointer_value(inner)))

    def commit(self, number: int, tokens: Sequence[int]) -> None:
        """Appends decided ``tokens``; does nothing where there is no such session."""
        if number in self._open:
            self._numbers.append(number)
            self._counts.append(len(tokens))
            self._tokens += tokens

    def close(self, number: int) -> None:
        """Ends a session, if there is one of this number; its answer is remembered for the tenant's later ones."""
        if number in self._open:
            self._flush()
            del self._open[number], self._owners[number]
            checked(self._end(self._handle, number))

    def forget(self, tenant: str) -> None:
        """Drops the tenant's sessions and answers, and overwrites their memory."""
        self._flush()
        for number in [number for number, owner in self._owners.items() if owner == tenant]:
            del self._open[number], self._owners[number]
        name = tenant.encode()
        checked(self._forget(self._handle, pointer_value(ffi.from_buffer(name)), len(name)))

    @property
    def bytes(self) -> int:
        """Memory that sequences and answers take."""
        size: int = self._bytes(self._handle)
        return size

    def draft(self) -> list[NativeTree]:
        """Reads a bounded number of new tokens; returns the trees of sessions whose tokens have changed."""
        self._flush()
        self._buffer.reserve(len(self._open), sum(self._open.values()))
        checked(self._write(self._handle, self._buffer.out))
        return self._buffer.read()

    def _flush(self) -> None:
        if not self._numbers:
            return
        numbers, counts = ffi.new("int64_t[]", self._numbers), ffi.new("int32_t[]", self._counts)
        tokens, size = ffi.new("int32_t[]", self._tokens), len(self._numbers)
        commits = ffi.new("outrider_suffix_commits *", (numbers, counts, tokens, size))
        self._numbers, self._counts, self._tokens = [], [], []
        checked(self._commit(self._handle, pointer_value(commits)))
