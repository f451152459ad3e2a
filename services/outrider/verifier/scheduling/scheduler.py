"""Which sequences run in a step, and with how many rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from sys import maxsize

from outrider.models.pages import OutOfPages, PageTable
from outrider.verifier.requests.sequence import Sequence
from outrider.verifier.scheduling.fairness import TokenCounters
from outrider.verifier.scheduling.holdings import Holdings
from outrider.verifier.scheduling.pins import Pins
from outrider.verifier.scheduling.waiting import Rank, Waiting, who_yields


class QueueFull(Exception):
    """The queue holds as many requests as it may."""


class NeverFits(Exception):
    """A request needs more pages than there are, even if it ran alone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verifier takes on at once.

    Attributes:
        running: most sequences in a step.
        waiting: most requests in the queue; when it is full, tenants with less than their share of it are still let in.
        prefill_rows: most prompt tokens in a step.
        guesses: most guesses in a step over all sequences.
        guesses_each: most guesses a sequence.
        page_size: tokens a page.
        context_length: most tokens of a sequence.
        guesses_tenant: most guesses in a step over one tenant's sequences; 0 for no such limit.
        rows: most rows in a step over everything, above ``running``.
        static: whether requests are taken in batches, each when the one before is done.
        aging_s: seconds for which a priority has to be passed over to count one level more.
        pinned: most pages that are pinned.
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
    static: bool = False
    aging_s: float = 10.0
    pinned: int = 0

    def __post_init__(self) -> None:
        if self.rows <= self.running:
            raise ValueError(f"{self.rows} rows a step leave none for prompts beside {self.running} running sequences")


@dataclass(slots=True)
class Plan:
    """One step: sequences that decode (one pending token each) and those that prefill, with rows for each."""

    decoding: list[Sequence]
    prefilling: list[tuple[Sequence, int]]

    @property
    def prompt_rows(self) -> int:
        """Rows of prompts."""
        return sum(rows for _, rows in self.prefilling)

    @property
    def rows(self) -> int:
        """Rows without guesses."""
        return len(self.decoding) + self.prompt_rows


class Scheduler:
    """Shares slots, rows and pages among the sequences.

    One order governs who is admitted, who prefills first and who keeps its pages: priority, then the tenant that was
    served least, then arrival (`Waiting`). Whoever is first in it and finds no pages is waited for, however small those
    behind it are, or long requests would never get in.

    Slots: where all are taken, a tenant with less than its share of them gets one at once of a tenant with more
    (`who_yields`), whose sequence is preempted.

    Rows: every sequence that decodes has its row in every step. Of what is left, prompts have the first half and
    guesses may buy the rest, so that a prompt moves in every step however many guesses there are; what guesses do not
    buy goes to prompts as well (`fill`). No step is longer than ``rows``, so that this limit is what a long prompt can
    add to the time between two tokens of the others.

    Pages: a sequence is admitted when pages for all its tokens are to be had beside those that are still owed to the
    running ones, and one more for each of these. So pages run out only through tokens generated since: whoever is
    preempted for whom, none is so twice without new tokens in between, and the first in the order never is. What a
    preempted sequence has said stays said; its keys and values are computed again. Pinned pages give way to one that
    would not fit if it ran alone, and to nobody else.

    Attributes:
        pins: pages that stay without a sequence.
        found: tokens of prompts that were found in pages.
    """

    def __init__(
        self, limits: Limits, pages: PageTable, salt: bytes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.pages = limits, pages
        self._clock = clock
        self._holdings = Holdings(pages, limits.page_size, salt)
        self.counters = TokenCounters()
        self.waiting = Waiting(self.counters, limits.aging_s)
        self.running: list[Sequence] = []
        self.pins = Pins(pages, limits.pinned)
        self.preempted = self.found = 0
        self._parked: set[Sequence] = set()

    def now(self) -> float:
        """Seconds on the clock that deadlines are told by."""
        return self._clock()

    def submit(self, sequence: Sequence) -> int:
        """Queues ``sequence``; how many go before it. `NeverFits` or `QueueFull` when it cannot."""
        self._check_size(sequence)
        tenant = sequence.request.tenant
        self.counters.enter(tenant, sequence.request.weight)
        if self._queue_is_full(tenant):
            self.counters.leave(tenant)
            raise QueueFull
        now = self._clock()
        self.waiting.add(sequence, now)
        return self.waiting.ahead(sequence, now)

    def _queue_is_full(self, tenant: str) -> bool:
        free = 0 if self.limits.static and self.running else self.limits.running - len(self.running)
        if len(self.waiting) + len(self._parked) < self.limits.waiting + free:
            return False
        queued = sum(other.request.tenant == tenant for other in chain(self.waiting, self._parked))
        return queued + 1 > self.counters.due(tenant, self.limits.waiting)

    def _check_size(self, sequence: Sequence) -> None:
        prompt, answer = len(sequence.request.prompt), sequence.request.max_tokens
        tokens = min(prompt + max(answer - 1, 0), self.limits.context_length)
        if self._holdings.needed(tokens) > self.pages.total:
            room = self.pages.total * self.limits.page_size
            raise NeverFits(
                f"{prompt} tokens of prompt and up to {answer} of answer do not fit into the pages for {room} tokens "
                f"that this verifier has: at most {max(room - prompt + 1, 0)} of answer do"
            )

    def chain(self, sequence: Sequence) -> tuple[list[bytes], int]:
        """Hashes of the full pages that ``sequence`` could begin with, and how many of the leading ones are here."""
        return self._holdings.chain(sequence)

    def park(self, sequence: Sequence) -> None:
        """Sets a sequence that is queued aside until `resume`; others go on."""
        self.waiting.remove(sequence)
        self._parked.add(sequence)

    def resume(self, sequence: Sequence) -> None:
        """Ends `park`, if it has not ended: the sequence's place is that of its arrival."""
        if sequence in self._parked:
            self._parked.discard(sequence)
            self.waiting.add(sequence, self._clock())

    def remove(self, sequence: Sequence) -> None:
        """Takes ``sequence`` out, wherever it is, and frees its pages."""
        if sequence in self._parked:
            self._parked.discard(sequence)
        elif not self.waiting.remove(sequence):
            self.running.remove(sequence)
        self.counters.leave(sequence.request.tenant)
        self._holdings.drop(sequence)

    def plan(self) -> Plan:
        """Admits what fits and gives out rows, but for those that guesses may buy."""
        self._admit()
        preempted = self.preempted
        plan, order = Plan([], []), sorted(self.running, key=self._rank)
        plan.decoding = [sequence for sequence in order if sequence.pending == 1 and self._make_room(sequence, 1)]
        left = self.limits.rows - len(plan.decoding)
        left = min(self.limits.prefill_rows, -(-left // 2) if plan.decoding else left)
        for sequence in order:
            rows = min(sequence.pending, left)
            if sequence.pending > 1 and rows and self._make_room(sequence, rows):
                plan.prefilling.append((sequence, rows))
                left -= rows
        return plan if self.preempted == preempted else self._still_running(plan)

    def _still_running(self, plan: Plan) -> Plan:
        running = set(map(id, self.running))
        plan.decoding = [s for s in plan.decoding if id(s) in running]
        plan.prefilling = [(s, rows) for s, rows in plan.prefilling if id(s) in running]
        return plan

    def most_guesses(self, plan: Plan) -> int:
        """How many guesses the step has rows for."""
        return min(self.limits.guesses, self.limits.rows - plan.rows)

    def room_for_guesses(self, sequence: Sequence, wanted: int) -> int:
        """How many of ``wanted`` guess rows find a slot, taking free pages but no other sequence's."""
        return self._holdings.stretch(sequence, 1, wanted, "guesses")

    def fill(self, plan: Plan, guesses: int) -> None:
        """Gives prompts the rows that are left beside ``guesses``, as far as pages are free."""
        if len(plan.decoding) == len(self.running):
            return
        left = min(self.limits.prefill_rows - plan.prompt_rows, self.limits.rows - plan.rows - guesses)
        given = {id(sequence): rows for sequence, rows in plan.prefilling}
        plan.prefilling = []
        for sequence in sorted((s for s in self.running if s.pending > 1), key=self._rank):
            rows = given.get(id(sequence), 0)
            more = self._holdings.stretch(sequence, rows, min(sequence.pending - rows, left))
            left -= more
            if rows + more:
                plan.prefilling.append((sequence, rows + more))

    def commit(self, sequence: Sequence, cached: int) -> None:
        """Notes that the leading ``cached`` tokens are in their pages for good, and publishes full pages."""
        self._holdings.settle(sequence, cached)

    def served(self, sequence: Sequence, tokens: int) -> None:
        """Charges the tenant for generated tokens: for what was said, not for guesses, which were no wish of its."""
        self.counters.charge_output(sequence.request.tenant, tokens, sequence.request.weight)

    def _admit(self) -> None:
        if self.limits.static and self.running:
            return
        now = self._clock()
        while (sequence := self.waiting.first(now)) is not None and self._has_slot(sequence):
            self._holdings.reuse(sequence)
            if self.running and not self._fits(sequence):
                self._holdings.drop(sequence)
                return
            self.waiting.take(sequence, now)
            self.running.append(sequence)
            self._charge(sequence)

    def _has_slot(self, sequence: Sequence) -> bool:
        """Whether there is a slot for ``sequence``, perhaps one that another has had to give back just now."""
        if len(self.running) < self.limits.running:
            return True
        if (other := self.yields_to(sequence)) is None:
            return False
        self._preempt(other)
        return True

    def yields_to(self, sequence: Sequence) -> Sequence | None:
        """Of those that run, the one that gives its slot to ``sequence`` if no other is free."""
        return None if self.limits.static else who_yields(sequence, self.running, self.counters, self._rank)

    def _fits(self, sequence: Sequence) -> bool:
        owed = sum(map(self._holdings.owed, [*self.running, sequence]))
        return owed + len(self.running) <= self.pages.available

    def _charge(self, sequence: Sequence) -> None:
        """Charges what is to be computed of a new sequence: not what is cached, which costs no run of the target, and
        not again what is computed anew after a preemption, which was no wish of the tenant's."""
        if not sequence.admitted:
            sequence.admitted, request = True, sequence.request
            sequence.reused = min(sequence.cached, len(request.prompt))
            self.pages.use(sequence.pages)
            self.found += sequence.reused
            self.counters.charge_input(request.tenant, len(sequence.tokens) - sequence.cached, request.weight)

    def _rank(self, sequence: Sequence) -> Rank:
        return -sequence.level, self.counters.rank(sequence.request.tenant), sequence.number

    def _make_room(self, sequence: Sequence, rows: int) -> bool:
        """Has pages for so many rows more, preempting the last in the order; whether it is not that one itself."""
        if self._holdings.room(sequence) >= rows:
            return True
        while sequence in self.running:
            try:
                self._holdings.grow(sequence, sequence.cached + rows)
                return True
            except OutOfPages:
                if self.running != [sequence] or not self.pins.yield_one():
                    self._preempt(max(self.running, key=self._rank))
        return False

    def _preempt(self, sequence: Sequence) -> None:
        self.preempted += 1
        self.running.remove(sequence)
        self._holdings.drop(sequence)
        self.waiting.add(sequence, self._clock())

    def check(self, others: Iterable[Sequence] = ()) -> None:
        """`AssertionError` unless every page is held by exactly the sequences that use it, and none for nothing."""
        held = [*self.running, *others]
        self.pages.check([*(sequence.pages for sequence in held), *self.pins.held])
        spare = [s.number for s in held if len(s.pages) > self._holdings.needed(len(s.tokens))]
        spare += [s.number for s in self.waiting if s.pages or s.cached]
        if spare:
            raise AssertionError(f"sequences {spare[:8]} hold pages that they do not need")
