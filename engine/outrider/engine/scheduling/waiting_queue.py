"""The queue: the order of waiting sequences, and which running sequence gives up its slot."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq

from outrider.engine.requests.sequence import Sequence
from outrider.engine.scheduling.fairness import TokenCounters

Rank = tuple[int, tuple[float, int], int]


class WaitingQueue:
    """Waiting sequences, ordered by priority, then by their tenants' counters (`TokenCounters.rank`), then by arrival.

    A priority ages: it gains a level for every ``aging_s`` seconds in which its requests waited and none of them was
    taken; the next one taken resets it. Priorities age, and not single requests: otherwise old requests of a greedy
    tenant would go before new requests of others, which the counters prevent. So the lower of two priorities is served
    at least once every ``aging_s`` times their distance, in the order of the counters. A sequence keeps the level at
    which it was taken, even if it is preempted later.
    """

    def __init__(self, counters: TokenCounters, aging_s: float) -> None:
        self._counters, self._aging_s = counters, aging_s
        self._lines: dict[tuple[int, str], list[tuple[int, int, Sequence]]] = {}
        self._since: dict[int, float] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for line in self._lines.values() for _, _, sequence in line)

    @property
    def tenants(self) -> set[str]:
        """The tenants of the waiting sequences."""
        return {tenant for _, tenant in self._lines}

    def add(self, sequence: Sequence, now: float) -> None:
        """Queues ``sequence`` at ``now`` seconds on a monotonic clock."""
        sequence.waiting_since = now
        self._since.setdefault(sequence.request.priority, now)
        line = self._lines.setdefault(_line_key(sequence), [])
        heapq.heappush(line, (-sequence.level, sequence.number, sequence))
        self._count += 1

    def oldest_since(self) -> float:
        """When the oldest sequence was queued, on the clock of `add`; 0.0 if none waits."""
        return min((sequence.waiting_since for sequence in self), default=0.0)

    def first(self, now: float) -> Sequence | None:
        """The next sequence to run; None if the queue is empty."""
        if not self._count:
            return None
        return min((line[0][2] for line in self._lines.values()), key=lambda head: self._rank(head, now))

    def ahead(self, sequence: Sequence, now: float) -> int:
        """Number of sequences ahead of ``sequence`` at ``now``."""
        rank = self._rank(sequence, now)
        return sum(self._rank(other, now) < rank for other in self)

    def before(self, sequence: Sequence, now: float) -> list[Sequence]:
        """The sequences ahead of ``sequence`` at ``now``, in order."""
        own = self._rank(sequence, now)
        ranked = sorted((rank, other.number, other) for other in self if (rank := self._rank(other, now)) < own)
        return [other for _, _, other in ranked]

    def take(self, sequence: Sequence, now: float) -> None:
        """Takes ``sequence`` out to run, at the level that its priority has reached."""
        sequence.level = self._level(sequence, now)
        self._since[sequence.request.priority] = now
        self.remove(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Removes ``sequence``; False if the queue does not hold it."""
        line = self._lines.get(_line_key(sequence), [])
        entry = next((entry for entry in line if entry[2] is sequence), None)
        if entry is None:
            return False
        line.remove(entry)
        heapq.heapify(line)
        self._count -= 1
        if not line:
            del self._lines[_line_key(sequence)]
            if all(priority != sequence.request.priority for priority, _ in self._lines):
                del self._since[sequence.request.priority]
        return True

    def _level(self, sequence: Sequence, now: float) -> int:
        priority = sequence.request.priority
        return max(sequence.level, priority + int((now - self._since.get(priority, now)) / self._aging_s))

    def _rank(self, sequence: Sequence, now: float) -> Rank:
        return -self._level(sequence, now), self._counters.rank(sequence.request.tenant), sequence.number


def slot_giver(
    sequence: Sequence, running: Seq[Sequence], counters: TokenCounters, rank: Callable[[Sequence], Rank]
) -> Sequence | None:
    """The ``running`` sequence that gives its slot to ``sequence`` if no slot is free; None for none.

    It is the last by ``rank`` among tenants that keep their share of the slots without it, and ranks behind
    ``sequence``. It is None if the tenant of ``sequence`` would exceed its share. So no tenant waits for the long
    answers of a tenant that came first, and slots do not move back and forth between tenants with their shares.
    """
    held, slots = Counter(other.request.tenant for other in running), len(running)
    tenant = sequence.request.tenant
    if held[tenant] + 1 > counters.due(tenant, slots):
        return None
    above = {other for other, slots_held in held.items() if slots_held - 1 >= counters.due(other, slots)}
    last = max((other for other in running if other.request.tenant in above), key=rank, default=None)
    return last if last is not None and rank(last) > rank(sequence) else None


def _line_key(sequence: Sequence) -> tuple[int, str]:
    return sequence.request.priority, sequence.request.tenant
