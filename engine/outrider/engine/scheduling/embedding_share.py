"""Bounds the time that embeddings take from answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import maxsize

from outrider.engine.requests.sequence import Sequence
from outrider.engine.scheduling.plan import Limits, Plan


class EmbeddingShare:
    """Gives embeddings rows in some steps, so that they take a share of the time while answers are computed.

    A step with their rows is followed by steps without, until the time that they took is their share again. So rows
    run together, which is quicker than one at a time, and few times between tokens are longer. Without answers, and
    while an answer waits for a slot or pages that embeddings hold, there is no bound.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._rows, self._share, self._clock = limits.embedding_rows, limits.embedding_share, clock
        self._rests_until = 0.0

    def most_rows(self, running: Iterable[Sequence], waiting: Iterable[Sequence]) -> int:
        """The most rows of embeddings in a step."""
        if not any(map(_answers, running)) or any(map(_answers, waiting)):
            return maxsize
        return 0 if self._clock() < self._rests_until else self._rows

    def ran(self, plan: Plan, seconds: float) -> None:
        """Learns how long a step took; one without answers took nothing from them."""
        rows = sum(rows for sequence, rows in plan.prefilling if not _answers(sequence))
        if 0 < rows < plan.rows:
            self._rests_until = self._clock() + seconds * rows / plan.rows * (1 / self._share - 1)


def _answers(sequence: Sequence) -> bool:
    return sequence.request.pooling is None
