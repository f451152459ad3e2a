"""The plan of a step, and the limits of an engine that every plan keeps."""

from __future__ import annotations

from dataclasses import dataclass
from sys import maxsize

from outrider.engine.requests.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an engine.

    Attributes:
        running: most sequences in a step.
        waiting: most requests in the queue; a full queue still admits tenants that have less than their share of it.
        prefill_rows: most prompt tokens in a step.
        guesses: most guesses in a step over all sequences.
        guesses_each: most guesses of a sequence in a step.
        page_size: tokens a page.
        context_length: most tokens of a sequence.
        guesses_tenant: most guesses in a step over one tenant's sequences; 0 for no limit.
        rows: most rows in a step, more than ``running``.
        aging_s: seconds of waiting that raise a priority by one level.
        pinned: most pinned pages.
        embedding_rows: most rows of embeddings in a step that computes answers, too.
        embedding_share: share of the time that embeddings take while answers are computed.
    """

    running: int
    waiting: int
    prefill_rows: int
    guesses: int
    guesses_each: int
    page_size: int
    context_length: int
    guesses_tenant: int = 0
    rows: int = maxsize
    aging_s: float = 10.0
    pinned: int = 0
    embedding_rows: int = maxsize
    embedding_share: float = 1.0

    def __post_init__(self) -> None:
        if self.rows <= self.running:
            raise ValueError(f"{self.rows} rows a step leave none for prompts beside {self.running} running sequences")


@dataclass(slots=True)
class Plan:
    """One step: decoding sequences (one pending token each), and prefilling sequences with the rows of each.

    ``embedding_room`` is how many more rows embeddings may have.
    """

    decoding: list[Sequence]
    prefilling: list[tuple[Sequence, int]]
    embedding_room: int = maxsize

    def most_rows(self, sequence: Sequence, left: int) -> int:
        """How many of the ``left`` rows a prefilling sequence may have."""
        return left if sequence.request.pooling is None else min(left, self.embedding_room)

    def give(self, sequence: Sequence, rows: int, planned: int = 0) -> None:
        """Gives a sequence ``rows``, of which ``planned`` are counted already."""
        self.prefilling.append((sequence, rows))
        if sequence.request.pooling is not None:
            self.embedding_room -= rows - planned

    @property
    def prompt_rows(self) -> int:
        """Rows of prompts."""
        return sum(rows for _, rows in self.prefilling)

    @property
    def rows(self) -> int:
        """Rows of the step without guesses."""
        return len(self.decoding) + self.prompt_rows
