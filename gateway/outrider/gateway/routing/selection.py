"""The order in which verifiers are offered a request."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from outrider.gateway.routing.health import Breakers
from outrider.gateway.routing.page_map import PageMap
from outrider.gateway.routing.page_reader import PageReader
from outrider.gateway.routing.router import Ask, Replica, Router, read_options
from outrider.gateway.routing.sticky import Sticky
from outrider.mesh import plugins
from outrider.mesh.errors import Unavailable
from outrider.mesh.registry import Member
from outrider.mesh.service import Mesh
from outrider.wire.residency import may_hold

if TYPE_CHECKING:
    from outrider.gateway.settings import GatewaySettings

GROUP = "outrider.routers"


class _Sessions(msgspec.Struct, forbid_unknown_fields=True):
    sticky: bool = False
    sticky_imbalance: Annotated[int, msgspec.Meta(ge=0)] = 8


class VerifierSelection:
    """The router of the settings, with sticky sessions if the settings ask for them, and circuit breakers.

    Raises `ConfigError` for an unknown router or unknown options.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        options: dict[str, Any] = dict(settings.router_options)
        own = {name: options.pop(name) for name in _Sessions.__struct_fields__ if name in options}
        sessions = read_options("sessions", own, _Sessions)
        self._router: Router = plugins.load(GROUP, settings.router)(options)
        self._pages = getattr(self._router, "pages", None)
        if sessions.sticky:
            self._router = Sticky(self._router, sessions.sticky_imbalance)
        self.breakers = Breakers(settings.breaker_failures, settings.breaker_open_s)

    def attach(self, mesh: Mesh) -> None:
        """Keeps the `PageMap` of the router, if it has one, up to date with the page news of verifiers."""
        if isinstance(self._pages, PageMap):
            reader = PageReader(mesh.bus, mesh.registry, mesh.tasks, self._pages)
            mesh.tasks.spawn(reader.run(), "news of pages")

    def order(
        self, ask: Ask, members: Sequence[Member], load: Callable[[Member], int], avoid: Collection[str] = ()
    ) -> list[Member]:
        """``members`` in the order of the router, but those with an open breaker, and then those to ``avoid``, last.

        Raises `Unavailable` if there are members, and none may hold the tenant's data.
        """
        members = _residents(ask, members)
        by_name = {member.instance: member for member in members}
        replicas = [Replica(member.instance, load(member), member.status) for member in members]
        ranked = [replica.instance for replica in self._router.choose(ask, random.sample(replicas, len(replicas)))]
        return [by_name[name] for name in sorted(self.breakers.order(ranked), key=lambda name: name in avoid)]

    def sent(self, ask: Ask, instance: str) -> None:
        """Tells the router that ``instance`` took the request; ``ask`` is the object that `order` got."""
        self._router.sent(ask, instance)


def _residents(ask: Ask, members: Sequence[Member]) -> list[Member]:
    """The ``members`` that may hold the data of a request."""
    residents = [member for member in members if may_hold(member.status, ask.residency)]
    if members and not residents:
        tags = ", ".join(sorted(ask.residency or ())) or "no place"
        raise Unavailable(f"no verifier is ready where data of this tenant may be: residency {tags}", retry_after=1.0)
    return residents
