"""The interface of a router, a plug-in of the group ``outrider.routers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from outrider.mesh.errors import ConfigError
from outrider.wire.residency import Residency

T = TypeVar("T")


class Ask(msgspec.Struct, frozen=True):
    """The part of a request that decides where it runs.

    ``prompt`` holds token ids, ``most`` is the most tokens of its answer, and ``session`` is the client's name for the
    conversation of the request, or an empty string. Only verifiers that may hold the data by ``residency`` are ranked.
    Only requests with the same ``cache_salt`` share pages.
    """

    tenant: str
    prompt: Sequence[int]
    most: int = 1
    session: str = ""
    residency: Residency = None
    cache_salt: str = ""


class Replica(msgspec.Struct, frozen=True):
    """A verifier that could take the request: its name, its number of requests, and its status in the registry."""

    instance: str
    load: int
    status: Mapping[str, Any] = {}


class Router(Protocol):
    """Ranks verifiers. A gateway has one router, and calls it from one thread.

    The constructor takes the mapping ``gateway.router_options`` and raises `ConfigError` for unknown options. If a
    router has an attribute ``pages``, a `PageMap`, the gateway updates it from the page news of verifiers.
    """

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """All of ``replicas``, which come in random order, ranked: the first is offered the request first."""
        ...

    def sent(self, ask: Ask, instance: str) -> None:
        """Notes that ``instance`` took the request; ``ask`` is the object that `choose` got."""
        ...


def read_options(router: str, options: Mapping[str, Any], kind: type[T]) -> T:
    """``options`` as ``kind``, a struct that forbids unknown fields; raises `ConfigError` if they do not fit."""
    try:
        return msgspec.convert(dict(options), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"router_options of {router}: {error}") from None
