"""Routes that say which methods a path has."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.gateway.errors import MethodNotAllowed
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send


class Paths(Router):
    """A router; a path that has ``routes`` for other methods only raises `MethodNotAllowed`, which names them all."""

    def __init__(self, routes: Sequence[Route]) -> None:
        super().__init__(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            await super().__call__(scope, receive, send)
        except HTTPException as error:
            if error.status_code != MethodNotAllowed.http_status:
                raise
            raise self._refusal(scope) from None

    def _refusal(self, scope: Scope) -> MethodNotAllowed:
        there = [route for route in self.routes if route.matches(scope)[0] is not Match.NONE]
        methods = sorted({method for route in there if isinstance(route, Route) for method in route.methods or ()})
        refusal = MethodNotAllowed(f"this path may be asked with {', '.join(methods)}, not with {scope['method']}")
        refusal.allowed = methods
        return refusal
