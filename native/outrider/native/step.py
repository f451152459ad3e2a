"""The rows of a step as the compiled decoder reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from outrider.native.library import ffi

MOST_NODES = 4096
"""The header's OUTRIDER_MOST_NODES."""


class SequenceRows(Protocol):
    """The rows of one sequence in a step (see `outrider.kernels.batch.SequenceRows`)."""

    @property
    def rows(self) -> int:
        """Number of rows in this step."""
        ...

    @property
    def context(self) -> int:
        """Tokens in front of the nodes."""
        ...

    @property
    def nodes(self) -> int:
        """Rows of this step and of earlier ones behind the context."""
        ...

    @property
    def pages(self) -> Sequence[int]:
        """Page ids in their order."""
        ...

    @property
    def parents(self) -> Sequence[int] | None:
        """Parent of each node, -1 at the top; None for a causal chunk."""
        ...


class Batch(Protocol):
    """The rows of a step (see `outrider.kernels.batch.RaggedBatch`)."""

    @property
    def sequences(self) -> Sequence[SequenceRows]:
        """Sequences in the order of their rows."""
        ...

    @property
    def starts(self) -> Sequence[int]:
        """First row of each sequence."""
        ...

    @property
    def rows(self) -> int:
        """Rows of all sequences."""
        ...

    @property
    def places(self) -> Any:
        """A buffer of int64 [rows], absolute position of each row."""
        ...


def sequences_of(batch: Batch) -> tuple[Any, list[Any]]:
    """The ``outrider_sequence[]`` of a step, and the arrays that it points to, which must live as long.

    Raises:
        ValueError: a tree has more than 4096 nodes.
    """
    owners: list[Any] = []
    sequences = []
    for rows, first in zip(batch.sequences, batch.starts, strict=True):
        if rows.parents is not None and rows.nodes > MOST_NODES:
            raise ValueError(f"a tree of {rows.nodes} nodes; there may be up to {MOST_NODES}")
        pages = ffi.new("int32_t[]", list(rows.pages))
        parents = ffi.NULL if rows.parents is None else ffi.new("int32_t[]", list(rows.parents))
        owners += pages, parents
        sequences.append((pages, parents, rows.rows, rows.context, rows.nodes, first))
    return ffi.new("outrider_sequence[]", sequences), owners
