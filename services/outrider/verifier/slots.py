"""Whose slot goes to whom where there are not enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Seq

from outrider.verifier.fairness import TokenCounters
from outrider.verifier.sequence import Sequence
from outrider.verifier.waiting import Rank


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
