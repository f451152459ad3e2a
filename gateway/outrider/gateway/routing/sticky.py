"""Sessions that stay with one verifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from outrider.gateway.routing.router import Ask, Replica, Router


class Sticky:
    """Ranks the own verifier of a session first, and the others as ``router`` does.

    The verifier follows from the names of session and verifiers alone (highest random weight; Thaler and Ravishankar
    1998). All gateways thus agree without messages, and a verifier that comes or goes moves only its own sessions. A
    verifier with over ``imbalance`` requests more than the least loaded one is ranked by ``router``.
    """

    def __init__(self, router: Router, imbalance: int) -> None:
        self._router, self._imbalance = router, imbalance

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """Ranks the session's own verifier first."""
        ranked = self._router.choose(ask, replicas)
        if not ask.session or not ranked:
            return ranked
        own = max(ranked, key=lambda replica: _weight(ask, replica))
        if own.load > min(replica.load for replica in ranked) + self._imbalance:
            return ranked
        return [own, *(replica for replica in ranked if replica is not own)]

    def sent(self, ask: Ask, instance: str) -> None:
        """Passes the call on to the router."""
        self._router.sent(ask, instance)


def _weight(ask: Ask, replica: Replica) -> bytes:
    return hashlib.blake2b(f"{ask.tenant}\0{ask.session}\0{replica.instance}".encode(), digest_size=8).digest()
