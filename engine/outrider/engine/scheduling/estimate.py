"""Estimates how long a new request will take, from past steps and answers."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import inf

from outrider.engine.requests.sequence import Request, Sequence
from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.scheduling.scheduler import Scheduler

_STEP_FADE, _ANSWER_FADE = 0.98, 0.9
"""Factors on the weight of earlier steps and of earlier answers when one is added; one slow step changes little."""
_ROWS = 64


class TooLate(Exception):
    """A request would miss its deadline.

    ``param`` names the deadline, ``seconds`` is the expected time from now on. The request may fit after ``retry_s``
    seconds; None if it would miss the deadline even in an idle engine.
    """

    def __init__(self, param: str, seconds: float, retry_s: float | None) -> None:
        super().__init__(param, seconds, retry_s)
        self.param, self.seconds, self.retry_s = param, seconds, retry_s


@dataclass(slots=True)
class _Mean:
    """A mean in which older observations ``fade``; it starts as ``total`` over ``weight``."""

    total: float
    weight: float
    fade: float

    def add(self, total: float, weight: float) -> None:
        self.total, self.weight = self.total * self.fade + total, self.weight * self.fade + weight

    @property
    def value(self) -> float:
        return self.total / self.weight


class Estimate:
    """Measured seconds of a prompt's row and of a generated token, and the usual length of answers.

    Until steps have run, the values come from ``cost``, the cost curve.
    """

    def __init__(self, cost: CostCurve) -> None:
        self._row = _Mean(cost(_ROWS) / _ROWS, 1.0, _STEP_FADE)
        self._token = _Mean(cost(1), 1.0, _STEP_FADE)
        self._length = _Mean(0.0, 0.0, _ANSWER_FADE)

    @property
    def row_s(self) -> float:
        """Seconds for a row of a prompt."""
        return self._row.value

    @property
    def token_s(self) -> float:
        """Seconds from one generated token of a running sequence to its next."""
        return self._token.value

    def step(self, *, rows: int, prompt_rows: int, decoding: int, tokens: int, seconds: float) -> None:
        """Learns from a step: all rows, rows of prompts, number of decoding sequences, and their new tokens."""
        if prompt_rows:
            self._row.add(seconds / rows, 1.0)
        if decoding and tokens:
            self._token.add(seconds * decoding / tokens, 1.0)

    def ended(self, sequence: Sequence) -> None:
        """Learns the length of an answer that was not cut short."""
        self._length.add(sequence.generated, 1.0)

    def first_token(self, scheduler: Scheduler, sequence: Sequence, now: float) -> float:
        """Seconds until the first token of ``sequence``, which waits in the scheduler's queue."""
        before = scheduler.waiting.before(sequence, now)
        pending = sum(other.pending for other in (*scheduler.running, *before))
        slot = self._slot(scheduler, before) if before or scheduler.slot_giver(sequence) is None else 0.0
        return max(slot, pending * self.row_s) + self.alone(sequence)

    def queue(self, scheduler: Scheduler) -> float:
        """Seconds until the first token of a request with an empty prompt, queued now behind all others."""
        pending = sum(other.pending for other in (*scheduler.running, *scheduler.waiting))
        seconds: float = pending * self.row_s
        return max(self._slot(scheduler, list(scheduler.waiting)), seconds)

    def alone(self, sequence: Sequence) -> float:
        """Seconds until the first token of ``sequence`` in an idle engine."""
        return len(sequence.tokens) * self.row_s + self.token_s

    def added_delay(self, scheduler: Scheduler, sequence: Sequence, tokens: int) -> float:
        """Seconds, summed over all sequences, that computing ``tokens`` of a waiting ``sequence`` costs.

        The sequence waits for the prompts before it, and each generating sequence waits for its rows.
        """
        others = [other for other in (*scheduler.running, *scheduler.waiting) if other is not sequence]
        prompts = sum(other.pending for other in others if other.pending > 1)
        generating = sum(other.pending == 1 for other in scheduler.running)
        return float((prompts + tokens * (1 + generating)) * self.row_s)

    def answer(self, sequence: Sequence) -> float:
        """Seconds from the first token of ``sequence`` to its last."""
        return max(self._left(sequence) - 1, 0.0) * self.token_s

    def check(self, scheduler: Scheduler, sequence: Sequence, now: float) -> float:
        """Seconds until the first token of a waiting ``sequence``; `TooLate` if it would miss a deadline."""
        request, first, answer = sequence.request, self.first_token(scheduler, sequence, now), self.answer(sequence)
        bounds = [("ttft_ms", request.first_by, 0.0), ("timeout_ms", request.end_by, answer)]
        for param, by, more in bounds if not request.emitted else ():
            left = by - now
            if by < inf and first + more > left:
                fits = self.alone(sequence) + more <= left
                raise TooLate(param, first + more, first + more - left if fits else None)
        return first

    def _slot(self, scheduler: Scheduler, before: list[Sequence]) -> float:
        """Seconds until a slot is free after the running sequences and those ``before``."""
        slots = [self._left(other) * self.token_s for other in scheduler.running]
        slots += [0.0] * max(scheduler.limits.running - len(slots), 0)
        heapq.heapify(slots)
        for other in before:
            takes = other.pending * self.row_s + self._left(other) * self.token_s
            heapq.heapreplace(slots, slots[0] + takes)
        return slots[0]

    def _left(self, sequence: Sequence) -> float:
        """Tokens that ``sequence`` is expected to generate from now on."""
        if _certain(sequence.request) or not self._length.weight:
            return float(sequence.left)
        usual = max(self._length.value, sequence.request.parameters.min_tokens)
        return min(float(sequence.left), max(usual - sequence.generated, 1.0))


def _certain(request: Request) -> bool:
    """Whether only the limit on its length can end the answer."""
    return not (request.stop_ids or request.parameters.stop or request.grammar)
