"""The router that takes verifiers in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from outrider.gateway.routing.router import Ask, Replica, read_options


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    pass


class RoundRobin:
    """Ranks verifiers in turns, whatever their load: a baseline for other routers."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read_options("round_robin", options, _Options)
        self._turn = 0

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """Ranks by instance, from the next one on."""
        ranked = sorted(replicas, key=lambda replica: replica.instance)
        self._turn += 1
        start = self._turn % max(len(ranked), 1)
        return ranked[start:] + ranked[:start]

    def sent(self, ask: Ask, instance: str) -> None:
        """Ignored: the ranking does not depend on it."""
