"""Trees of guesses from a compiled decoder: one per session, grown by a run of the model at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from outrider.native.decoder import DecoderPool, NativeDecoder
from outrider.native.library import checked, ffi, pointer_value
from outrider.native.moves import pool_fields
from outrider.native.ranking import Drawing
from outrider.native.trees import NativeTree, TreeBuffer

MOST_CHILDREN = 16
"""The header's OUTRIDER_MOST_CHILDREN."""
_BRIEF = 1 << 24
"""Multiply-adds up to which a run keeps the interpreter's lock: about 0.12 ms of work."""


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
        least_value: a node less likely than this is neither grown nor returned.
        row_cost: time that a row adds to a run, as a share of the first row's; nodes worth less are not grown.
    """

    children: int
    rows: int
    rows_each: int
    ahead: int
    prefill_rows: int
    context_length: int
    least_value: float
    row_cost: float = 0.0


class NativeDrafts:
    """Trees of guesses of a small model for many sequences. Called from one thread.

    A call that finds no memory raises `MemoryError`, and all sessions end.

    Args:
        decoder: the model.
        pool: empty pages of its kind.
        shape: how trees grow.

    Raises:
        ValueError: the pool is not of the decoder's kind, or the shape has more children than there is room for.
    """

    def __init__(self, decoder: NativeDecoder, pool: DecoderPool, shape: DraftShape) -> None:
        decoder.check(pool)
        if not 1 <= shape.children <= MOST_CHILDREN:
            raise ValueError(f"{shape.children} children; there may be 1 to {MOST_CHILDREN}")
        self._weights = sum(each.n * each.k for each in decoder.weights)
        functions, brief = decoder.library.functions, decoder.library.brief_function
        inner = ffi.new("outrider_pool *", pool_fields(pool)), ffi.new("outrider_draft_shape *", asdict(shape))
        made = ffi.new("outrider_drafts **")
        checked(functions.outrider_drafts_new(decoder.handle, decoder.model, *inner, made))
        self._long = ffi.gc(made[0], functions.outrider_drafts_free)
        self._kept, self._handle = (decoder, pool, decoder.handle), pointer_value(self._long)
        self._start, self._end = brief("outrider_drafts_open"), brief("outrider_drafts_close")
        self._commit, self._rest = brief("outrider_drafts_commit"), brief("outrider_drafts_rest")
        self._free_pages, self._reading = brief("outrider_drafts_free_pages"), brief("outrider_drafts_reading")
        self._plan, self._write = brief("outrider_drafts_plan"), brief("outrider_drafts_write")
        self._run_briefly, self._run_long = brief("outrider_drafts_run"), functions.outrider_drafts_run
        self._open: set[int] = set()
        self._planned, self._buffer = ffi.new("outrider_draft_plan *"), TreeBuffer()
        self._planned_at = pointer_value(self._planned)

    def open(self, number: int, tokens: Sequence[int], most: int, drawing: Drawing) -> None:
        """Starts a session, in place of one of the same number.

        Args:
            number: of the session.
            tokens: of the sequence so far.
            most: nodes of the largest useful tree.
            drawing: how the target draws.
        """
        self._open.add(number)
        ids = ffi.new("int32_t[]", list(tokens))
        opening = {
            "number": number,
            "seed": drawing.seed,
            "shaping": drawing.shaping,
            "tokens": ids,
            "count": len(tokens),
            "most": most,
        }
        inner = ffi.new("outrider_draft_opening *", opening)
        checked(self._start(self._handle, pointer_value(inner)))

    def commit(self, number: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided ``tokens`` to a sequence of ``length``; a session of another length ends."""
        ids = ffi.new("int32_t[]", list(tokens))
        checked(self._commit(self._handle, number, length, pointer_value(ids), len(tokens)))

    def close(self, number: int) -> None:
        """Ends a session, if there is one of this number."""
        self._open.discard(number)
        self._end(self._handle, number)

    def rest(self, number: int) -> None:
        """Drafts nothing more for a session until tokens are decided again."""
        self._rest(self._handle, number)

    @property
    def free_pages(self) -> int:
        """Pages that no session holds."""
        free: int = self._free_pages(self._handle)
        return free

    @property
    def reading(self) -> bool:
        """Whether a session has decided tokens that the model has not read."""
        return bool(self._reading(self._handle))

    def grow(self, least: float = 0.0) -> int:
        """Runs the model once over tokens and nodes that wait for a run; returns the number of their sessions.

        Nodes less likely than ``least`` wait on. Other threads run meanwhile, unless there is little to do.
        """
        checked(self._plan(self._handle, least, self._planned_at))
        if (rows := self._planned.rows) * self._weights > _BRIEF:
            checked(self._run_long(self._long))
        elif rows:
            checked(self._run_briefly(self._handle))
        sequences: int = self._planned.sequences
        return sequences

    def trees(self, most: int) -> list[NativeTree]:
        """The trees that are better than at the last call, of up to ``most`` nodes."""
        self._buffer.reserve(len(self._open), len(self._open) * most)
        checked(self._write(self._handle, most, self._buffer.out))
        return self._buffer.read()
