"""The router that spreads requests evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from outrider.gateway.routing.router import Ask, Replica, read_options


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    pass


class LeastLoad:
    """Ranks verifiers by their requests, running and waiting, fewest first."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read_options("least_load", options, _Options)

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """Ranks by load."""
        return sorted(replicas, key=lambda replica: replica.load)

    def sent(self, ask: Ask, instance: str) -> None:
        """Ignored: the ranking does not depend on it."""
