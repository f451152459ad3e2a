"""Fairness between tenants: a virtual token counter of each tenant, and its due share of slots."""

from __future__ import annotations

from collections import Counter

_INPUT_WEIGHT, _OUTPUT_WEIGHT = 1.0, 2.0
"""Weights of an input and an output token: an output token costs a run of the target, input goes in chunks."""


class TokenCounters:
    """Tokens served to each tenant, divided by its weight; the tenant with the lowest counter is next.

    After Sheng et al. 2024, "Fairness in Serving Large Language Models" (arXiv 2401.00588), with their weights of 1 for
    input and 2 for output. A tenant without requests that returns is lifted to the lowest counter of the tenants with
    requests: unused time gives no claim against the others. If no tenant has requests, it is lifted to the counter of
    the tenant that left last.

    Args:
        most_idle: most counters kept of tenants without requests.
    """

    def __init__(self, most_idle: int = 4096) -> None:
        self._most_idle = most_idle
        self._served: dict[str, float] = {}
        self._requests: Counter[str] = Counter()
        self._weights: dict[str, float] = {}
        self._left = 0.0

    def of(self, tenant: str) -> float:
        """The tenant's counter."""
        return self._served.get(tenant, 0.0)

    def rank(self, tenant: str) -> tuple[float, int]:
        """Sort key, lowest first: the tenant's counter, then its number of requests."""
        return self.of(tenant), self._requests[tenant]

    def due(self, tenant: str, places: int) -> float:
        """A tenant's share of ``places``, by the weights of all tenants with requests; at least one."""
        return max(1.0, places * self._weights[tenant] / sum(self._weights.values()))

    def enter(self, tenant: str, weight: float = 1.0) -> None:
        """Notes a new request of the tenant, waiting or running."""
        if not self._requests[tenant]:
            least = min((self.of(other) for other, count in self._requests.items() if count), default=self._left)
            self._served[tenant] = max(self.of(tenant), least)
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
        self._served[tenant] = self.of(tenant) + _INPUT_WEIGHT * tokens / weight

    def charge_output(self, tenant: str, tokens: int, weight: float) -> None:
        """Charges generated tokens."""
        self._served[tenant] = self.of(tenant) + _OUTPUT_WEIGHT * tokens / weight

    def _forget(self) -> None:
        """Drops the lower half of the idle counters if there are too many: a return would lift them anyway."""
        idle = [tenant for tenant in self._served if tenant not in self._requests]
        if len(idle) > self._most_idle:
            for tenant in sorted(idle, key=self.of)[: len(idle) // 2]:
                del self._served[tenant]
