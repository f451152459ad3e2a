"""Sessions that stay at one verifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from outrider.gateway.routing.router import Ask, Replica, Router


class Sticky:
    """Before what ``router`` says, a request of a session goes to the session's own verifier.

    Which that is follows from their names alone (highest random weight; Thaler and Ravishankar 1998), so that all
    gateways agree without a word, and that a verifier which comes or goes moves no other sessions than its own. A
    verifier with over ``imbalance`` requests more than the least loaded one is left to the router.
    """

    def __init__(self, router: Router, imbalance: int) -> None:
        self._router, self._imbalance = router, imbalance

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """The session's own verifier, then as the router says."""
        ranked = self._router.choose(ask, replicas)
        if not ask.session or not ranked:
            return ranked
        own = max(ranked, key=lambda replica: _weight(ask, replica))
        if own.load > min(replica.load for replica in ranked) + self._imbalance:
            return ranked
        return [own, *(replica for replica in ranked if replica is not own)]

    def sent(self, ask: Ask, instance: str) -> None:
        """For the router to hear."""
        self._router.sent(ask, instance)


def _weight(ask: Ask, replica: Replica) -> bytes:
    return hashlib.blake2b(f"{ask.tenant}\0{ask.session}\0{replica.instance}".encode(), digest_size=8).digest()
