"""Which sequences run in a step, and with how many rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from outrider.models.pages import OutOfPages, PageTable, chain_hash
from outrider.verifier.sequence import Sequence


class QueueFull(Exception):
    """The queue holds as many requests as it may."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verifier takes on at once.

    Attributes:
        running: most sequences in a step.
        waiting: most requests in the queue.
        prefill_rows: most prompt tokens in a step.
        guesses: most guesses in a step over all sequences.
        guesses_each: most guesses a sequence.
        page_size: tokens a page.
        context_length: most tokens of a sequence.
        guesses_tenant: most guesses in a step over one tenant's sequences; 0 for no such limit.
    """

    running: int
    waiting: int
    prefill_rows: int
    guesses: int
    guesses_each: int
    page_size: int
    context_length: int
    guesses_tenant: int = 0


@dataclass(slots=True)
class Plan:
    """One step: sequences that decode (one pending token each) and those that prefill, with rows for each."""

    decoding: list[Sequence]
    prefilling: list[tuple[Sequence, int]]

    @property
    def rows(self) -> int:
        """Rows without guesses."""
        return len(self.decoding) + sum(rows for _, rows in self.prefilling)


class Scheduler:
    """First come, first served; every running sequence moves in every step, within the row and page limits."""

    def __init__(self, limits: Limits, pages: PageTable, salt: bytes) -> None:
        self.limits, self.pages, self._salt = limits, pages, salt
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def submit(self, sequence: Sequence) -> None:
        """Queues ``sequence``; `QueueFull` when it cannot."""
        if len(self.waiting) >= self.limits.waiting:
            raise QueueFull
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Takes ``sequence`` out, wherever it is, and frees its pages."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._drop_pages(sequence)

    def plan(self) -> Plan:
        """Admits what fits and shares out the step's rows."""
        self._admit()
        plan = Plan([], [])
        left = self.limits.prefill_rows
        for sequence in list(self.running):
            if sequence not in self.running:
                continue
            rows = min(sequence.pending, max(left, 0)) if sequence.pending > 1 else 1
            if rows == 0 or not self._make_room(sequence, sequence.cached + rows):
                continue
            if sequence.pending > 1:
                left -= rows
                plan.prefilling.append((sequence, rows))
            else:
                plan.decoding.append(sequence)
        return self._still_running(plan)

    def _still_running(self, plan: Plan) -> Plan:
        running = set(map(id, self.running))
        plan.decoding = [s for s in plan.decoding if id(s) in running]
        plan.prefilling = [(s, rows) for s, rows in plan.prefilling if id(s) in running]
        return plan

    def room_for_guesses(self, sequence: Sequence, wanted: int) -> int:
        """How many of ``wanted`` guess rows find a slot, taking free pages but no other sequence's."""
        with suppress(OutOfPages):
            self._grow(sequence, sequence.cached + 1 + wanted)
        return min(wanted, len(sequence.pages) * self.limits.page_size - sequence.cached - 1)

    def commit(self, sequence: Sequence, cached: int) -> None:
        """Notes that the leading ``cached`` tokens are in their pages for good, and publishes full pages."""
        sequence.cached = cached
        while (sequence.published + 1) * self.limits.page_size <= cached:
            index = sequence.published
            self.pages.publish(sequence.pages[index], self._hash(sequence, index))
            sequence.published += 1

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.running:
            sequence = self.waiting[0]
            needed = -(-len(sequence.tokens) // self.limits.page_size)
            if self.running and needed > self.pages.available:
                return
            self.running.append(self.waiting.popleft())
            self._reuse(sequence)

    def _reuse(self, sequence: Sequence) -> None:
        usable = 0 if sequence.scoring else (len(sequence.tokens) - 1) // self.limits.page_size
        sequence.pages = self.pages.match([self._hash(sequence, index) for index in range(usable)])
        sequence.published = len(sequence.pages)
        sequence.cached = len(sequence.pages) * self.limits.page_size
        if sequence.steps == 0:
            sequence.reused = min(sequence.cached, len(sequence.request.prompt))

    def _hash(self, sequence: Sequence, index: int) -> bytes:
        size = self.limits.page_size
        for page in range(len(sequence.hashes), index + 1):
            parent = sequence.hashes[-1] if page else self._salt + sequence.request.tenant.encode()
            sequence.hashes.append(chain_hash(parent, sequence.tokens[page * size : (page + 1) * size]))
        return sequence.hashes[index]

    def _make_room(self, sequence: Sequence, tokens: int) -> bool:
        while True:
            try:
                self._grow(sequence, tokens)
                return True
            except OutOfPages:
                youngest = self.running[-1]
                self._preempt(youngest)
                if youngest is sequence:
                    return False

    def _grow(self, sequence: Sequence, tokens: int) -> None:
        while len(sequence.pages) * self.limits.page_size < tokens:
            sequence.pages.append(self.pages.allocate(sequence.pages[-1] if sequence.pages else None))

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)
        self._drop_pages(sequence)

    def _drop_pages(self, sequence: Sequence) -> None:
        self.pages.release(sequence.pages)
        sequence.pages, sequence.cached, sequence.published = [], 0, 0

    def check(self, others: Iterable[Sequence] = ()) -> None:
        """`AssertionError` unless every page is held by exactly the sequences that use it."""
        self.pages.check([sequence.pages for sequence in [*self.running, *others]])
