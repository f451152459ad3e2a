"""The queue: whose turn is next by priority, by what tenants were served, and by arrival; and whose slot it gets."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq

from outrider.verifier.requests.sequence import Sequence
from outrider.verifier.scheduling.fairness import TokenCounters

Rank = tuple[int, tuple[float, int], int]


class Waiting:
    """Sequences that are to run, in order of priority, then of their tenants' counters (`TokenCounters.rank`), then of
    arrival.

    A priority ages: for every ``aging_s`` seconds in which requests of it waited and none was taken, it counts one
    level more, until one is taken. It is the priority that ages, and not each request: old requests of a tenant that
    asks for too much would otherwise go before new ones of others, which is what the counters are there to prevent. So
    of any two priorities the lower one is served at least once in every ``aging_s`` times their distance, and within
    it everyone's turn comes by the counters. What is taken keeps the level it was taken at, also where it is preempted
    later.
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

    def add(self, sequence: Sequence, now: float) -> None:
        """Queues ``sequence``, at ``now`` seconds of a clock that only rises."""
        self._since.setdefault(sequence.request.priority, now)
        line = self._lines.setdefault(_line(sequence), [])
        heapq.heappush(line, (-sequence.level, sequence.number, sequence))
        self._count += 1

    def first(self, now: float) -> Sequence | None:
        """The one whose turn it is."""
        if not self._count:
            return None
        return min((line[0][2] for line in self._lines.values()), key=lambda head: self._rank(head, now))

    def ahead(self, sequence: Sequence, now: float) -> int:
        """How many go before ``sequence`` as things are."""
        rank = self._rank(sequence, now)
        return sum(self._rank(other, now) < rank for other in self)

    def before(self, sequence: Sequence, now: float) -> list[Sequence]:
        """Those that go before ``sequence`` as things are, in order."""
        own = self._rank(sequence, now)
        ranked = sorted((rank, other.number, other) for other in self if (rank := self._rank(other, now)) < own)
        return [other for _, _, other in ranked]

    def take(self, sequence: Sequence, now: float) -> None:
        """Takes ``sequence`` out to run, at the level that it has come to."""
        sequence.level = self._level(sequence, now)
        self._since[sequence.request.priority] = now
        self.remove(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Takes ``sequence`` out; whether it was there."""
        line = self._lines.get(_line(sequence), [])
        entry = next((entry for entry in line if entry[2] is sequence), None)
        if entry is None:
            return False
        line.remove(entry)
        heapq.heapify(line)
        self._count -= 1
        if not line:
            del self._lines[_line(sequence)]
            if all(priority != sequence.request.priority for priority, _ in self._lines):
                del self._since[sequence.request.priority]
        return True

    def _level(self, sequence: Sequence, now: float) -> int:
        priority = sequence.request.priority
        return max(sequence.level, priority + int((now - self._since.get(priority, now)) / self._aging_s))

    def _rank(self, sequence: Sequence, now: float) -> Rank:
        return -self._level(sequence, now), self._counters.rank(sequence.request.tenant), sequence.number


def who_yields(
    sequence: Sequence, running: Seq[Sequence], counters: TokenCounters, rank: Callable[[Sequence], Rank]
) -> Sequence | None:
    """Of those ``running``, which have all slots, the one that has to give its own to ``sequence``; None for nobody.

    It is the last by ``rank`` of the tenants that have their share of the slots without it, behind ``sequence`` in that
    order, and nobody where the tenant of ``sequence`` would have more than its share. So nobody waits for the long
    answers of one that came first with many requests, and slots do not go to and fro between tenants with their shares.
    """
    held, slots = Counter(other.request.tenant for other in running), len(running)
    tenant = sequence.request.tenant
    if held[tenant] + 1 > counters.due(tenant, slots):
        return None
    above = {other for other, has in held.items() if has - 1 >= counters.due(other, slots)}
    last = max((other for other in running if other.request.tenant in above), key=rank, default=None)
    return last if last is not None and rank(last) > rank(sequence) else None


def _line(sequence: Sequence) -> tuple[int, str]:
    return sequence.request.priority, sequence.request.tenant
