"""Which verifier a request is offered to first: routers, which are plug-ins, and what stands around them."""

from __future__ import annotations

from outrider.gateway.routing.router import Ask, Replica, Router
from outrider.gateway.routing.selection import GROUP, Routes

__all__ = ["GROUP", "Ask", "Replica", "Router", "Routes"]
