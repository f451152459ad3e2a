"""Chooses the sequences of a step and the rows of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain

from outrider.engine.pages.page_table import OutOfPages, PageTable
from outrider.engine.requests.sequence import Sequence
from outrider.engine.scheduling.embedding_share import EmbeddingShare
from outrider.engine.scheduling.fairness import TokenCounters
from outrider.engine.scheduling.pins import Pins
from outrider.engine.scheduling.plan import Limits, Plan
from outrider.engine.scheduling.sequence_pages import SequencePages
from outrider.engine.scheduling.waiting_queue import Rank, WaitingQueue, slot_giver


class QueueFull(Exception):
    """The queue is full."""


class NeverFits(Exception):
    """A request needs more pages than the engine has."""


class Scheduler:
    """Shares slots, rows and pages among the sequences.

    One order decides which sequence is admitted, prefills first and keeps its pages: priority, then the tenant served
    least, then arrival (`WaitingQueue`). If the first sequence in the order finds no pages, all sequences behind it
    wait, even smaller ones; otherwise long requests would never run.

    Slots: if all slots are taken, a tenant with less than its share preempts a sequence of a tenant with more
    (`slot_giver`).

    Rows: every decoding sequence has a row in every step. Prompts get the first half of the remaining rows and guesses
    may buy the rest, so that prompts move in every step for any number of guesses. Rows that guesses do not buy go to
    prompts too (`fill`). ``rows`` limits every step, and so what a long prompt can add to the ITL of other sequences.
    Embeddings have rows of prompts, but beside answers only a share of the time (`EmbeddingShare`).

    Pages: a sequence is admitted if there are pages for all its tokens, beside the pages still owed to the running
    sequences and one more for each of them. So pages run out only through tokens generated since. No sequence is
    preempted twice without new tokens in between, and the first in the order is never preempted. A preempted sequence
    keeps its tokens; their keys and values are computed again. Pinned pages give way only to a sequence that runs alone
    and does not fit.

    Attributes:
        pins: pages that stay without a sequence.
        embeddings: the share of embeddings.
        reused: number of prompt tokens that were found in pages.
        prefixes: number of prompt tokens by where their pages came from: verifier, kvcache, peer or computed.
        preempted: number of preemptions.
    """

    def __init__(
        self, limits: Limits, pages: PageTable, salt: bytes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.pages = limits, pages
        self._clock = clock
        self._sequence_pages = SequencePages(pages, limits.page_size, salt)
        self.counters = TokenCounters()
        self.waiting = WaitingQueue(self.counters, limits.aging_s)
        self.running: list[Sequence] = []
        self.pins = Pins(pages, limits.pinned)
        self.embeddings = EmbeddingShare(limits, clock)
        self.preempted = self.reused = 0
        self.prefixes: Counter[str] = Counter()
        self._parked: set[Sequence] = set()

    def now(self) -> float:
        """Seconds on the clock of the deadlines."""
        return self._clock()

    def submit(self, sequence: Sequence) -> int:
        """Queues ``sequence`` and returns how many sequences are ahead. Raises `NeverFits` or `QueueFull`."""
        self._check_size(sequence)
        tenant = sequence.request.tenant
        self.counters.enter(tenant, sequence.request.weight)
        if self._queue_is_full(tenant):
            self.counters.leave(tenant)
            raise QueueFull
        now = self._clock()
        sequence.submitted_at = now
        self.waiting.add(sequence, now)
        return self.waiting.ahead(sequence, now)

    def _queue_is_full(self, tenant: str) -> bool:
        free = self.limits.running - len(self.running)
        if len(self.waiting) + len(self._parked) < self.limits.waiting + free:
            return False
        queued = sum(other.request.tenant == tenant for other in chain(self.waiting, self._parked))
        return queued + 1 > self.counters.due(tenant, self.limits.waiting)

    def _check_size(self, sequence: Sequence) -> None:
        prompt, answer = len(sequence.request.prompt), sequence.request.max_tokens
        tokens = min(prompt + max(answer - 1, 0), self.limits.context_length)
        if self._sequence_pages.needed(tokens) > self.pages.total:
            room = self.pages.total * self.limits.page_size
            raise NeverFits(
                f"a prompt of {prompt} tokens and an answer of up to {answer} tokens exceed the engine's memory of "
                f"{room} tokens; after this prompt the answer may have at most {max(room - prompt + 1, 0)} tokens"
            )

    def chain(self, sequence: Sequence) -> tuple[list[bytes], int]:
        """Hashes of the full pages that ``sequence`` could reuse, and how many leading ones are in the table."""
        return self._sequence_pages.chain(sequence)

    def park(self, sequence: Sequence) -> None:
        """Takes a queued sequence out of the queue until `resume`."""
        self.waiting.remove(sequence)
        self._parked.add(sequence)

    def resume(self, sequence: Sequence) -> None:
        """Puts a parked sequence back into the queue, at the place of its arrival; does nothing for others."""
        if sequence in self._parked:
            self._parked.discard(sequence)
            self.waiting.add(sequence, self._clock())

    def remove(self, sequence: Sequence) -> None:
        """Removes a parked, waiting or running ``sequence`` and frees its pages."""
        if sequence in self._parked:
            self._parked.discard(sequence)
        elif not self.waiting.remove(sequence):
            self.running.remove(sequence)
        self.counters.leave(sequence.request.tenant)
        self._sequence_pages.drop(sequence)

    def plan(self) -> Plan:
        """Admits the sequences that fit, and plans the rows of those that are ready, except rows for guesses."""
        self._admit()
        preempted = self.preempted
        plan, order = Plan([], []), sorted(self.running, key=self._rank)
        decoding = [sequence for sequence in order if sequence.pending == 1 and sequence.ready]
        plan.decoding = [sequence for sequence in decoding if self._make_room(sequence, 1)]
        left = self.limits.rows - len(plan.decoding)
        left = min(self.limits.prefill_rows, -(-left // 2) if plan.decoding else left)
        plan.embedding_room = self.embeddings.most_rows(self.running, self.waiting)
        for sequence in order if len(plan.decoding) < len(order) else ():
            rows = min(sequence.pending, plan.most_rows(sequence, left))
            if sequence.pending > 1 and rows and self._make_room(sequence, rows):
                plan.give(sequence, rows)
                left -= rows
        return plan if self.preempted == preempted else self._still_running(plan)

    def _still_running(self, plan: Plan) -> Plan:
        running = set(map(id, self.running))
        plan.decoding = [s for s in plan.decoding if id(s) in running]
        plan.prefilling = [(s, rows) for s, rows in plan.prefilling if id(s) in running]
        return plan

    def most_guesses(self, plan: Plan) -> int:
        """Most guesses that the step has rows for."""
        return min(self.limits.guesses, self.limits.rows - plan.rows)

    def room_for_guesses(self, sequence: Sequence, wanted: int) -> int:
        """How many of ``wanted`` guess rows find a place; takes free pages, but none of other sequences."""
        return self._sequence_pages.stretch(sequence, 1, wanted, "guesses")

    def fill(self, plan: Plan, guesses: int) -> None:
        """Gives prompts the rows that ``guesses`` leave, as far as pages are free."""
        if len(plan.decoding) == len(self.running):
            return
        left = min(self.limits.prefill_rows - plan.prompt_rows, self.limits.rows - plan.rows - guesses)
        planned = {id(sequence): rows for sequence, rows in plan.prefilling}
        plan.prefilling = []
        for sequence in sorted((s for s in self.running if s.pending > 1), key=self._rank):
            rows = planned.get(id(sequence), 0)
            wanted = min(sequence.pending - rows, plan.most_rows(sequence, left))
            more = self._sequence_pages.stretch(sequence, rows, wanted)
            left -= more
            if rows + more:
                plan.give(sequence, rows + more, planned=rows)

    def commit(self, sequence: Sequence, cached: int) -> None:
        """Notes that the leading ``cached`` tokens are in their pages, and publishes full pages."""
        self._sequence_pages.settle(sequence, cached)

    def _admit(self) -> None:
        now = self._clock()
        while (sequence := self.waiting.first(now)) is not None and self._has_slot(sequence):
            self._sequence_pages.reuse(sequence)
            if self.running and not self._fits(sequence):
                self._sequence_pages.drop(sequence)
                return
            self.waiting.take(sequence, now)
            self.running.append(sequence)
            self._charge_input(sequence, now)

    def _has_slot(self, sequence: Sequence) -> bool:
        """Whether there is a slot for ``sequence``; preempts another sequence if that gives one."""
        if len(self.running) < self.limits.running:
            return True
        if (other := self.slot_giver(sequence)) is None:
            return False
        self._preempt(other)
        return True

    def slot_giver(self, sequence: Sequence) -> Sequence | None:
        """The running sequence that gives its slot to ``sequence`` if no slot is free."""
        return slot_giver(sequence, self.running, self.counters, self._rank)

    def _fits(self, sequence: Sequence) -> bool:
        owed = sum(map(self._sequence_pages.owed, [*self.running, sequence]))
        return owed + len(self.running) <= self.pages.available

    def _charge_input(self, sequence: Sequence, now: float) -> None:
        """Charges the tenant once for the tokens of a new sequence that the target has to compute.

        Cached tokens are free, and so are tokens computed again after a preemption.
        """
        if not sequence.admitted:
            sequence.admitted, sequence.admitted_at, request = True, now, sequence.request
            sequence.reused = min(sequence.cached, len(request.prompt))
            self.pages.use(sequence.pages)
            self.reused += sequence.reused
            self.prefixes.update(sequence.prefix_sources())
            self.counters.charge_input(request.tenant, len(sequence.tokens) - sequence.cached, request.weight)

    def _rank(self, sequence: Sequence) -> Rank:
        return -sequence.level, self.counters.rank(sequence.request.tenant), sequence.number

    def _make_room(self, sequence: Sequence, rows: int) -> bool:
        """Allocates pages for ``rows`` rows, preempting the last in the order; False if that is ``sequence``."""
        if self._sequence_pages.room(sequence) >= rows:
            return True
        while sequence in self.running:
            try:
                self._sequence_pages.grow(sequence, sequence.cached + rows)
                return True
            except OutOfPages:
                if self.running != [sequence] or not self.pins.yield_one():
                    self._preempt(max(self.running, key=self._rank))
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self.preempted += 1
        self.running.remove(sequence)
        self._sequence_pages.drop(sequence)
        self.waiting.add(sequence, self._clock())

    def check(self, others: Iterable[Sequence] = ()) -> None:
        """Raises `AssertionError` if a page is not held by exactly its users, or a sequence has spare pages.

        ``others`` are further sequences with pages.
        """
        held = [*self.running, *others]
        self.pages.check([*(sequence.pages for sequence in held), *self.pins.held])
        spare = [s.number for s in held if len(s.pages) > self._sequence_pages.needed(len(s.tokens))]
        spare += [s.number for s in self.waiting if s.pages or s.cached]
        if spare:
            raise AssertionError(f"sequences {spare[:8]} hold pages that they do not need")
