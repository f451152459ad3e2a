"""What a simulation found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from outrider.measure.planning.verifier import Job

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """The requests that were due in the measured time, in order; NaN for what did not happen.

    Attributes:
        seconds: measured seconds.
        ended: requests that ended in the measured time.
        tokens_per_s: tokens of answers in the measured time, a second.
        first_s, whole_s: seconds from a request's due time to its first and to its last token.
        token_s: mean seconds of a request's further tokens; 0 for an answer of one token.
        refused: requests that no verifier took.
        arrived, finished, unfinished: all requests of the simulation: that came, that ended, and the others
            that were not refused.
        moved: times that a request went on at another verifier because its own died.
        preempted: preemptions.
        busy: share of the time, by kind, in which a replica worked.
        verifiers: verifiers at the end.
    """

    seconds: float
    ended: int
    tokens_per_s: float
    first_s: Values
    whole_s: Values
    token_s: Values
    refused: int
    arrived: int
    finished: int
    unfinished: int
    moved: int
    preempted: int
    busy: dict[str, float]
    verifiers: int

    @property
    def keeps_up(self) -> bool:
        """Whether as many requests ended as were due, but for a twentieth."""
        return self.ended >= 0.95 * len(self.first_s)

    def first(self, percent: float) -> float:
        """A percentile of the seconds to the first token; infinite if it falls on a request without one."""
        return percentile(self.first_s, percent)

    def token(self, percent: float) -> float:
        """A percentile of the seconds of further tokens; infinite if it falls on a request that did not end."""
        return percentile(self.token_s, percent)


def percentile(values: Values, percent: float) -> float:
    """A percentile with NaN counted as infinite; 0 of nothing."""
    if not len(values):
        return 0.0
    return float(np.percentile(np.where(np.isnan(values), np.inf, values), percent, method="higher"))


def times(jobs: Sequence[Job]) -> tuple[Values, Values, Values]:
    """Of each job the seconds to the first token, to the last, and of each further token."""
    due, first, end, tokens = (
        np.asarray([getattr(job, name) for job in jobs], float) for name in ("due", "first", "end", "tokens")
    )
    return first - due, end - due, (end - first) / np.maximum(tokens - 1, 1)


def tokens_within(jobs: Sequence[Job], since: float, until: float) -> float:
    """Tokens of ``jobs`` between two times: the first when it comes, the others evenly up to the end."""
    total = 0.0
    for job in jobs:
        if since <= job.first < until:
            total += 1
        if job.tokens > 1 and job.end > job.first:
            inside = min(job.end, until) - max(job.first, since)
            total += (job.tokens - 1) * max(inside, 0.0) / (job.end - job.first)
    return total if math.isfinite(total) else 0.0
