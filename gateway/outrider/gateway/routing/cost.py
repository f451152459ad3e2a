"""The router for verifiers of different cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from outrider.gateway.routing.router import Ask, Replica, read_options

_Cost = Annotated[float, msgspec.Meta(gt=0)]


class _Options(msgspec.Struct, forbid_unknown_fields=True):
    costs: dict[str, _Cost] = {}


class Cost:
    """Ranks verifiers by ``verifier.cost`` times the number of requests with this one, lowest first.

    A verifier of cost 2 thus has half as many requests as one of cost 1. The option ``costs`` overrides the verifiers'
    own settings, by instance.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._costs = read_options("cost", options, _Options).costs

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """Ranks by cost and load."""
        return sorted(replicas, key=lambda replica: self._cost(replica) * (replica.load + 1))

    def sent(self, ask: Ask, instance: str) -> None:
        """Ignored: the ranking does not depend on it."""

    def _cost(self, replica: Replica) -> float:
        return self._costs.get(replica.instance) or float(replica.status.get("cost", 1.0))
