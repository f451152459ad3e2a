"""What stands before OpenAI's endpoints: the entrance, as HTTP knows it."""

from __future__ import annotations

from outrider.gateway.admission.entrance import Entrance, Visitor
from outrider.mesh.errors import InvalidRequest
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_SINGLE = ("authorization", "x-api-key")
_GUARDED = ("/v1/", "/tokenize", "/detokenize")


def guarded(path: str) -> bool:
    """Whether what is under ``path`` is for callers that are let in."""
    return path.startswith(_GUARDED)


class Guard:
    """Wraps the routes, as an ASGI application: each `guarded` request gets an `Admission` in its state."""

    def __init__(self, routes: ASGIApp, entrance: Entrance) -> None:
        self._routes, self._entrance = routes, entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request in; errors are those of `Entrance.admit`."""
        if guarded(scope["path"]):
            state, counts = scope["state"], scope["method"] == "POST"
            state["admission"] = await self._entrance.admit(_visitor(scope), state["headers"], counts=counts)
        await self._routes(scope, receive, send)


def _visitor(scope: Scope) -> Visitor:
    headers = Headers(scope=scope)
    for name in _SINGLE:
        if len(headers.getlist(name)) > 1:
            raise InvalidRequest(f"the header {name} is given several times: give it once", param=name)
    return Visitor(
        peer=scope["client"][0] if scope.get("client") else "",
        authorization=headers.get("authorization", ""),
        api_key=headers.get("x-api-key", ""),
        forwarded=headers.getlist("x-forwarded-for"),
    )
