"""The router that takes verifiers in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from outrider.gateway.routing.router import Ask, Replica, read_options


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    pass


class RoundRobin:
    """One verifier after the other, whatever they have to do: to compare others with."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        read_options("round_robin", options, _Options)
        self._turn = 0

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """In the order of their names, from the next one on."""
        ranked = sorted(replicas, key=lambda replica: replica.instance)
        self._turn += 1
        start = self._turn % max(len(ranked), 1)
        return ranked[start:] + ranked[:start]

    def sent(self, ask: Ask, instance: str) -> None:
        """Nothing is to be learnt from it."""
