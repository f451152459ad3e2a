"""The sequences of a step as the compiled decoder reads them."""

from __future__ import annotations

import ctypes
import struct
from array import array

from outrider.kernels.batch import RaggedBatch, SequenceRows

_MOST_NODES = 4096
_SEQUENCE = struct.Struct("@PPiiii")
"""Addresses of the pages and the parents (0 for a chunk), rows, context, nodes, first row."""


class Sequences:
    """The sequences of ``batch`` in memory that lives as long as this.

    Attributes:
        address: of the first.

    Raises:
        ValueError: a tree has more nodes than can be walked.
    """

    def __init__(self, batch: RaggedBatch) -> None:
        words: list[int] = []
        places = [_put(words, rows) for rows in batch.sequences]
        self._words = array("i", words)
        start, size = self._words.buffer_info()[0], self._words.itemsize
        self._packed = bytearray(_SEQUENCE.size * len(places))
        for index, (rows, (pages, parents)) in enumerate(zip(batch.sequences, places, strict=True)):
            above, nodes = (0, rows.rows) if rows.parents is None else (start + parents * size, rows.nodes)
            shape = rows.rows, rows.context, nodes, batch.starts[index]
            _SEQUENCE.pack_into(self._packed, index * _SEQUENCE.size, start + pages * size, above, *shape)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._packed))


def _put(words: list[int], rows: SequenceRows) -> tuple[int, int]:
    """Where the pages and the parents begin among the ``words`` that they are added to."""
    pages = len(words)
    words += rows.pages
    parents = len(words)
    if rows.parents is not None:
        if rows.nodes > _MOST_NODES:
            raise ValueError(f"a tree of {rows.nodes} nodes; there may be up to {_MOST_NODES}")
        words += rows.parents
    return pages, parents
