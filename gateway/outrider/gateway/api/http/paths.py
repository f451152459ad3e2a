"""A router whose refusals name the methods of a path."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.gateway.errors import MethodNotAllowed
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send


class PathRouter(Router):
    """Routes requests by path; raises `MethodNotAllowed`, with the allowed methods, if a path lacks the method."""

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
        matching = [route for route in self.routes if route.matches(scope)[0] is not Match.NONE]
        methods = sorted({method for route in matching if isinstance(route, Route) for method in route.methods or ()})
        refusal = MethodNotAllowed(f"this path may be asked with {', '.join(methods)}, not with {scope['method']}")
        refusal.allowed = methods
        return refusal
