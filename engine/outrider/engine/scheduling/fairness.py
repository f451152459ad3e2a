"""Fairness between tenants: a virtual token counter of each tenant, and its due share of slots."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple, Protocol

_INPUT_WEIGHT, _OUTPUT_WEIGHT = 1.0, 2.0
"""Weights of an input and an output token: an output token costs a run of the target, input goes in chunks."""
_ELSEWHERE = 3.0
"""Intervals between news for which a tenant that waits elsewhere counts as waiting there."""


class Share(NamedTuple):
    """Service of a tenant since the last news, and whether requests of the tenant wait here."""

    service: float
    waits: bool


class _Told(Protocol):
    @property
    def service(self) -> float: ...
    @property
    def waits(self) -> bool: ...


class TokenCounters:
    """Tokens served to each tenant, divided by its weight; the tenant with the lowest counter is next.

    After Sheng et al. 2024, "Fairness in Serving Large Language Models" (arXiv 2401.00588), with their weights of 1 for
    input and 2 for output. A tenant without requests that returns is lifted to the lowest counter of the tenants with
    requests: unused time gives no claim against the others. If no tenant has requests, it is lifted to the counter of
    the tenant that left last.

    A counter has the service of all verifiers of the model: `tell` gives the service here to the others, and `hear`
    adds theirs. A tenant whose requests wait at another verifier is not lifted: it has left no time unused.

    Args:
        most_idle: most counters kept of tenants without requests.
        clock: seconds on a monotonic clock.
    """

    def __init__(self, most_idle: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_idle, self._clock = most_idle, clock
        self._served: dict[str, float] = {}
        self._requests: Counter[str] = Counter()
        self._weights: dict[str, float] = {}
        self._left = 0.0
        self._untold: dict[str, float] = {}
        self._elsewhere: dict[str, float] = {}

    def of(self, tenant: str) -> float:
        """The tenant's counter."""
        return self._served.get(tenant, 0.0)

    def rank(self, tenant: str) -> tuple[float, int]:
        """Sort key, lowest first: the tenant's counter, then its number of requests."""
        return self._served.get(tenant, 0.0), self._requests[tenant]

    def due(self, tenant: str, places: int) -> float:
        """A tenant's share of ``places``, by the weights of all tenants with requests; at least one."""
        return max(1.0, places * self._weights[tenant] / sum(self._weights.values()))

    def enter(self, tenant: str, weight: float = 1.0) -> None:
        """Notes a new request of the tenant, waiting or running."""
        if not self._requests[tenant] and tenant not in self._waiting_elsewhere():
            self._lift(tenant)
        self._requests[tenant] += 1
        self._weights[tenant] = weight

    def leave(self, tenant: str) -> None:
        """Notes that a request of the tenant has ended."""
        self._requests[tenant] -= 1
        if not self._requests[tenant]:
            del self._requests[tenant], self._weights[tenant]
            self._left = self.of(tenant)
            self._forget()

    def charge_input(self, tenant: str, tokens: int, weight: float) -> None:
        """Charges tokens of a prompt that were not computed before."""
        self._charge(tenant, _INPUT_WEIGHT * tokens / weight)

    def charge_output(self, tenant: str, tokens: int, weight: float) -> None:
        """Charges generated tokens, but not guesses, which the tenant did not ask for."""
        self._charge(tenant, _OUTPUT_WEIGHT * tokens / weight)

    def tell(self, waiting: Set[str], most: int) -> dict[str, Share]:
        """The service since the last call, for the other verifiers, and whether the tenant is among ``waiting``.

        The ``most`` tenants with the most service; the service of the others stays for the next call.
        """
        named = sorted(self._untold.keys() | waiting, key=lambda tenant: -self._untold.get(tenant, 0.0))
        return {tenant: Share(self._untold.pop(tenant, 0.0), tenant in waiting) for tenant in named[:most]}

    def hear(self, shares: Mapping[str, _Told], every_s: float) -> None:
        """Adds the service of another verifier, which tells of it every ``every_s`` seconds."""
        waiting = self._waiting_elsewhere()
        for tenant, share in shares.items():
            if share.waits and not self._requests[tenant] and tenant not in waiting:
                self._lift(tenant)
            self._served[tenant] = self._left = self.of(tenant) + share.service
            if share.waits:
                self._elsewhere[tenant] = self._clock() + _ELSEWHERE * every_s
        self._forget()

    def _charge(self, tenant: str, service: float) -> None:
        self._served[tenant] = self._served.get(tenant, 0.0) + service
        self._untold[tenant] = self._untold.get(tenant, 0.0) + service

    def _lift(self, tenant: str) -> None:
        active = self._requests.keys() | self._elsewhere.keys()
        self._served[tenant] = max(self.of(tenant), min(map(self.of, active - {tenant}), default=self._left))

    def _waiting_elsewhere(self) -> Set[str]:
        now = self._clock()
        self._elsewhere = {tenant: until for tenant, until in self._elsewhere.items() if until > now}
        return self._elsewhere.keys()

    def _forget(self) -> None:
        """Drops the lower half of the idle counters if there are too many: a return would lift them anyway."""
        active = self._requests.keys() | self._elsewhere.keys()
        idle = [tenant for tenant in self._served if tenant not in active]
        if len(idle) > self._most_idle:
            for tenant in sorted(idle, key=self.of)[: len(idle) // 2]:
                del self._served[tenant]
