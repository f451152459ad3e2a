"""The rows of one step: the sequence, the position, and the slot of keys and values of each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

_FEW_ROWS = 48
"""Rows of a sequence from which on arrays are quicker than lists."""


@dataclass(slots=True)  # quicker to make and to read than a named tuple, as each sequence of a step has one
class SequenceRows:
    """The rows of one sequence in a step.

    Attributes:
        rows: rows in this step, at least 1.
        context: tokens whose keys and values are in the pages and that every row sees.
        pages: page ids in order; enough for ``context`` and the rows (or the whole tree) behind it.
        parents: None for a causal chunk, in which row i sees rows 0 to i and is written at slot ``context + i``.
            Otherwise a tree: the parent of node i is node ``parents[i] < i``, or the context where that is -1, and
            node i lies at slot ``context + i``. The step computes the last ``rows`` nodes; those before them, if any,
            were written by earlier steps.
    """

    rows: int
    context: int
    pages: Sequence[int]
    parents: Sequence[int] | None = None

    @property
    def nodes(self) -> int:
        """Rows behind the context, those of earlier steps included."""
        return self.rows if self.parents is None else len(self.parents)

    @property
    def first(self) -> int:
        """Slot of the first row of this step."""
        return self.context + self.nodes - self.rows


@dataclass(frozen=True, slots=True)
class Tree:
    """The shape of a tree.

    Attributes:
        depths: of each node, 0 at the top.
        paths: of each node, the set of nodes that it sees (itself included) as bits: bit j for node j.
    """

    depths: list[int]
    paths: list[int]

    @classmethod
    def from_parents(cls, parents: Sequence[int]) -> Tree:
        """The tree of ``parents``; `ValueError` where a parent does not come before its child."""
        depths, paths = _depths(parents), list[int]()
        for node, parent in enumerate(parents):
            paths.append((paths[parent] if parent >= 0 else 0) | 1 << node)
        return cls(depths, paths)

    def visible(self, rows: int) -> npt.NDArray[np.bool_]:
        """Which nodes each of the last ``rows`` nodes sees: bool [rows, nodes]."""
        width = (len(self.paths) + 7) // 8
        packed = b"".join(path.to_bytes(width, "little") for path in self.paths[-rows:])
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
        return bits.reshape(rows, width * 8)[:, : len(self.paths)].astype(np.bool_)


class RaggedBatch:
    """The rows of a step, sequence after sequence, without padding.

    Attributes:
        sequences: as given.
        starts: first row of each sequence in the step.
        rows: rows of the step.
        places: int64 [rows] in the host's memory, absolute position of each row: context plus depth.
    """

    __slots__ = (
        *("_device", "_positions", "_slots", "_trees"),
        *("page_size", "places", "rows", "sequences", "starts"),
    )

    def __init__(self, sequences: Sequence[SequenceRows], page_size: int, device: torch.device | str) -> None:
        self.sequences = tuple(sequences)
        self.page_size = page_size
        *self.starts, self.rows = accumulate([s.rows for s in self.sequences], initial=0)
        positions: list[int] = []
        for sequence in self.sequences:
            positions += _positions(sequence, page_size)
        self.places, self._device = array("q", positions), device
        self._positions: torch.Tensor | None = None
        self._slots: torch.Tensor | None = None
        self._trees: list[Tree | None] | None = None

    @classmethod
    def build(
        cls, sequences: Sequence[SequenceRows], page_size: int, device: torch.device | str = "cpu"
    ) -> RaggedBatch:
        """The batch of ``sequences``, whose pages hold ``page_size`` tokens each.

        Raises:
            ValueError: no rows, a context below zero, too few pages, or parents that are no tree.
        """
        if not sequences:
            raise ValueError("a step has at least one sequence")
        return cls(sequences, page_size, device)

    @property
    def host_positions(self) -> npt.NDArray[np.int64]:
        """Absolute position of each row: int64 [rows]."""
        return np.frombuffer(self.places, np.int64)

    @property
    def positions(self) -> torch.Tensor:
        """`host_positions` on the device."""
        if self._positions is None:
            self._positions = torch.from_numpy(self.host_positions).to(self._device)
        return self._positions

    @property
    def trees(self) -> list[Tree | None]:
        """Shape of each sequence's tree; None for a causal chunk."""
        if self._trees is None:
            self._trees = [None if s.parents is None else Tree.from_parents(s.parents) for s in self.sequences]
        return self._trees

    @property
    def host_slots(self) -> npt.NDArray[np.int64]:
        """Slot of the pool for each row's keys and values: int64 [rows]."""
        slots, size = list[int](), self.page_size
        for each in self.sequences:
            rows, pages, first = each.rows, each.pages, each.context if each.parents is None else each.first
            if rows == 1:  # Most steps are of such rows.
                slots.append(pages[first // size] * size + first % size)
            elif rows < _FEW_ROWS:
                slots += [pages[slot // size] * size + slot % size for slot in range(first, first + rows)]
            else:
                slots += row_slots(each, size, first, rows).tolist()
        return np.array(slots, np.int64)

    @property
    def slots(self) -> torch.Tensor:
        """`host_slots` on the device."""
        if self._slots is None:
            self._slots = torch.from_numpy(self.host_slots).to(self._device)
        return self._slots


def row_slots(sequence: SequenceRows, page_size: int, first: int, count: int) -> npt.NDArray[np.int64]:
    """Slots in the pool of a sequence's tokens ``first`` to ``first + count - 1``."""
    page = first // page_size
    pages = np.array(sequence.pages[page : (first + count - 1) // page_size + 1], np.int64)
    slots = (pages[:, None] * page_size + np.arange(page_size)).reshape(-1)
    return slots[first - page * page_size :][:count]


def _positions(sequence: SequenceRows, page_size: int) -> Iterable[int]:
    """Absolute position of each row; `ValueError` as `RaggedBatch.build` says."""
    rows, context, pages, parents = sequence.rows, sequence.context, sequence.pages, sequence.parents
    nodes = rows if parents is None else len(parents)
    if rows < 1 or context < 0:
        raise ValueError(f"{rows} rows behind {context} tokens: at least 1 row, behind at least 0")
    if nodes < rows:
        raise ValueError(f"a tree of {nodes} nodes has no {rows} rows")
    if len(pages) * page_size < context + nodes:
        raise ValueError(f"{len(pages)} pages of {page_size} do not hold {context} tokens and {nodes} rows")
    if parents is not None:
        return _depths(parents, context)[-rows:]
    return range(context, context + rows) if rows > 1 else (context,)  # a range takes three times as long


def _depths(parents: Sequence[int], top: int = 0) -> list[int]:
    """Depth of each node, ``top`` at the top; `ValueError` where the parents form no tree."""
    depths: list[int] = []
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"parent {parent} of node {node} is not one of -1 to {node - 1}")
        depths.append(depths[parent] + 1 if parent >= 0 else top)
    return depths
