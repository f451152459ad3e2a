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

    def __post_init__(self) -> None:
        if self.rows <= self.running:
            raise ValueError(f"{self.rows} rows a step leave none for prompts beside {self.running} running sequences")


@dataclass(slots=True)
class Plan:
    """One step: decoding sequences (one pending token each), and prefilling sequences with the rows of each."""

    decoding: list[Sequence]
    prefilling: list[tuple[Sequence, int]]

    @property
    def prompt_rows(self) -> int:
        """Rows of prompts."""
        return sum(rows for _, rows in self.prefilling)

    @property
    def rows(self) -> int:
        """Rows of the step without guesses."""
        return len(self.decoding) + self.prompt_rows
