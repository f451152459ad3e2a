"""The order in which verifiers are offered a request, and the calls to them.

In come jobs, and the load and pages that verifiers announce; out go ranked verifiers and calls. Streams and the rooms
above call it. Routers are plug-ins.
"""

from __future__ import annotations

from outrider.gateway.routing.router import Ask, Replica, Router
from outrider.gateway.routing.selection import GROUP, VerifierSelection

__all__ = ["GROUP", "Ask", "Replica", "Router", "VerifierSelection"]
