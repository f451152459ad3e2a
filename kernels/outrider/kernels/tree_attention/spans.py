"""Cuts the positions that a row sees, as a function of the row's own position alone.

A row at position ``i`` sees positions 0 to ``i``. Those before `far_end` lie behind any tree the row can be part of,
so they are decided tokens that all rows of a sequence share; they are cut into spans of `span` positions. The rest,
64 to 127 positions, are near: there a tree's rows differ. The result joins the partial results of the far spans, in
their order, with that of the near positions. Which program computes which part does not matter, so a token has the
same bits in a prompt's chunk, alone, and in a tree of any shape (He and Thinking Machines Lab 2025, "Defeating
nondeterminism in LLM inference", do it for batches).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from outrider.kernels.batch import RaggedBatch

UNIT = 64
"""Spans and near positions begin at multiples of it."""
MOST_NODES = 64
"""Most nodes of a tree."""
LOG2_E = 1.4426950408889634
"""A factor of scores that turns their exponentials into powers of two."""
_LEAST_SPAN = 256
MOST_SPANS = 32
"""Most far spans of a row."""

Indices = npt.NDArray[np.int64]


def effective_windows(windows: Sequence[int | None], batch: RaggedBatch) -> tuple[int | None, ...]:
    """The window of each layer, None where it leaves out no position of the step."""
    last = int(batch.host_positions.max())
    return tuple(window if window is not None and window <= last else None for window in windows)


def far_end(positions: Indices) -> Indices:
    """The end of the far positions of rows at ``positions``: at most their context's end, whatever their tree."""
    ends: Indices = np.maximum(positions - (MOST_NODES - 1), 0) // UNIT * UNIT
    return ends


def span(far: Indices) -> Indices:
    """Positions of a far span: a power of two, at least 256, so that there are at most `MOST_SPANS` of them."""
    least_width = np.maximum(-(-far // MOST_SPANS), _LEAST_SPAN)
    powers: Indices = 1 << np.ceil(np.log2(least_width)).astype(np.int64)
    return powers
