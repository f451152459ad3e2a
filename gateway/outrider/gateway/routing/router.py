"""What a router is: the protocol of the plug-in group ``outrider.routers``."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from outrider.mesh.errors import ConfigError

T = TypeVar("T")


class Ask(msgspec.Struct, frozen=True):
    """A request as far as it matters to where it runs.

    ``prompt`` are token ids, ``most`` the most tokens of its answer, ``session`` what the client calls the conversation
    that it belongs to, or an empty string.
    """

    tenant: str
    prompt: Sequence[int]
    most: int = 1
    session: str = ""


class Replica(msgspec.Struct, frozen=True):
    """A verifier that could take the request: its name, how many requests it has, and what it tells the registry."""

    instance: str
    load: int
    status: Mapping[str, Any] = {}


class Router(Protocol):
    """Ranks verifiers. It is made once a gateway, with ``gateway.router_options``, and called from one thread.

    The constructor takes the options, a mapping, and raises `ConfigError` for those that it does not know. A router
    with an attribute ``pages``, a `PageMap`, has it kept true to the news that verifiers publish of their pages.
    """

    def choose(self, ask: Ask, replicas: Sequence[Replica]) -> list[Replica]:
        """All of ``replicas``, those to be asked first before the others. They come in random order."""
        ...

    def sent(self, ask: Ask, instance: str) -> None:
        """Hears which verifier took the request."""
        ...


def read_options(router: str, options: Mapping[str, Any], kind: type[T]) -> T:
    """``options`` as ``kind``, a struct that forbids unknown fields; `ConfigError` says what is wrong with them."""
    try:
        return msgspec.convert(dict(options), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"router_options of {router}: {error}") from None


def shuffled(replicas: Sequence[Replica]) -> list[Replica]:
    """``replicas`` in random order, for routers to be asked with."""
    return random.sample(replicas, len(replicas)) if len(replicas) > 1 else list(replicas)
