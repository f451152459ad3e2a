"""Which tenants metrics name."""

from __future__ import annotations

from collections.abc import Sequence

MOST_TENANTS = 100
"""Most tenants that metrics name where all may be named."""
ALL = "all"
OTHER = "other"


class TenantLabels:
    """Labels of tenants: ``named`` ones by their names, with `ALL` the first `MOST_TENANTS` ones, others as `OTHER`.

    Without ``named`` tenants, all labels are empty.
    """

    def __init__(self, named: Sequence[str]) -> None:
        self._takes_all = ALL in named
        self._named = set(named) - {ALL}
        self._shown = bool(named)

    def __call__(self, tenant: str) -> str:
        """The label of ``tenant``."""
        if tenant in self._named:
            return tenant
        if self._takes_all and len(self._named) < MOST_TENANTS:
            self._named.add(tenant)
            return tenant
        return OTHER if self._shown else ""

    def own(self, tenant: str) -> str | None:
        """The label of ``tenant`` if no other tenant has it; None if it has."""
        label = self(tenant)
        return label if label == tenant else None
