"""Where a tenant's data may be held: services announce a tag, and a tenant has a list of tags or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Residency = frozenset[str] | None
"""Tags of the services that may hold a tenant's data; None for all services."""


def may_hold(status: Mapping[str, Any], residency: Collection[str] | None) -> bool:
    """Whether the service that announces ``status`` may hold data; one without a tag may not where tags are asked."""
    return residency is None or status.get("residency") in residency
