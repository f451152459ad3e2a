"""Trees of guesses from a compiled decoder: sessions, and growth a run of the model at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from outrider.native.decoder import NativeDecoder, Pool
from outrider.native.library import at, ffi
from outrider.native.moves import pool_of
from outrider.native.trees import Grown, TreeRoom

MOST_CHILDREN: int = ffi.typeof("outrider_limits").relements["OUTRIDER_MOST_CHILDREN"]
_BRIEF = 1 << 24
"""Products, rows times weights, up to which a run keeps the interpreter's lock: about an eighth of a millisecond."""


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


class Drawing(NamedTuple):
    """How the target draws a sequence's tokens.

    Attributes:
        seed: of its dice; without meaning where ``temperature`` is 0.
        temperature: 0 where it is greedy.
        top_k: likeliest tokens that are kept, 0 for all.
        top_p: probability of the likeliest tokens that are kept.
        min_p: of the likeliest token's probability, what others need to be kept.
    """

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


class DraftRun(NamedTuple):
    """The next run of the model.

    Attributes:
        rows: of the run; 0 where there is nothing to do.
        decided: of the rows, tokens that were decided, which the model has to take in.
        promised: how likely the nodes that it grows are, summed up.
    """

    rows: int
    decided: int
    promised: float


class NativeDrafts:
    """What a small model guesses behind many sequences. Called from one thread.

    Args:
        decoder: the model.
        pool: empty pages of its kind.
        shape: how trees grow.

    Raises:
        ValueError: the pool is not of the decoder's kind, or the shape has more children than there is room for.
    """

    def __init__(self, decoder: NativeDecoder, pool: Pool, shape: DraftShape) -> None:
        decoder.check(pool)
        if not 1 <= shape.children <= MOST_CHILDREN:
            raise ValueError(f"{shape.children} children; there may be 1 to {MOST_CHILDREN}")
        self._weights = sum(each.n * each.k for each in decoder.weights)
        functions, brief = decoder.library.functions, decoder.library.brief
        inner = ffi.new("outrider_pool *", pool_of(pool)), ffi.new("outrider_draft_shape *", asdict(shape))
        made = functions.outrider_drafts_new(decoder.handle, decoder.model, *inner)
        self._long = ffi.gc(made, functions.outrider_drafts_free)
        self._kept, self._handle = (decoder, pool, decoder.handle), at(self._long)
        self._start, self._end = brief("outrider_drafts_open"), brief("outrider_drafts_close")
        self._commit, self._rest = brief("outrider_drafts_commit"), brief("outrider_drafts_rest")
        self._free_pages, self._reading = brief("outrider_drafts_free_pages"), brief("outrider_drafts_reading")
        self._plan, self._write = brief("outrider_drafts_plan"), brief("outrider_drafts_write")
        self._run_briefly, self._run_long = brief("outrider_drafts_run"), functions.outrider_drafts_run
        self._open: set[int] = set()
        self._planned, self._room = ffi.new("outrider_draft_run *"), TreeRoom()
        self._planned_at = at(self._planned)

    def open(self, number: int, tokens: Sequence[int], most: int, drawing: Drawing) -> None:
        """Starts a session, in place of one of the same number.

        Args:
            number: of the session.
            tokens: so far.
            most: the largest tree that is of use.
            drawing: of the target.
        """
        self._open.add(number)
        ids, (seed, *shaping) = ffi.new("int32_t[]", list(tokens)), drawing
        opening = {
            "number": number,
            "seed": seed,
            "shaping": dict(zip(drawing._fields[1:], shaping, strict=True)),
            "tokens": ids,
            "count": len(tokens),
            "most": most,
        }
        inner = ffi.new("outrider_draft_opening *", opening)
        self._start(self._handle, at(inner))

    def commit(self, number: int, length: int, tokens: Sequence[int]) -> None:
        """``tokens`` were decided behind ``length`` others; a session that has another length ends."""
        ids = ffi.new("int32_t[]", list(tokens))
        self._commit(self._handle, number, length, at(ids), len(tokens))

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
        """Whether a session has decided tokens that the model has not run on."""
        return bool(self._reading(self._handle))

    def plan(self, least: float = 0.0) -> DraftRun:
        """Lays out the next run, which grows no node less likely than ``least``."""
        planned = self._planned
        self._plan(self._handle, least, self._planned_at)
        return DraftRun(planned.rows, planned.decided, planned.promised)

    def run(self) -> None:
        """Runs the model as it was laid out last. Other threads run meanwhile, unless there is little to do."""
        if self._planned.rows * self._weights <= _BRIEF:
            self._run_briefly(self._handle)
        else:
            self._run_long(self._long)

    def trees(self, most: int) -> list[Grown]:
        """The trees that are better than when they were last told, of up to ``most`` nodes."""
        self._room.make(len(self._open), len(self._open) * most)
        return self._room.read(self._write(self._handle, most, self._room.out))
