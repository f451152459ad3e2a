"""Access control for HTTP requests."""

from __future__ import annotations

from outrider.gateway.admission.access_control import AccessControl, Sender
from outrider.mesh.errors import InvalidRequest
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_SINGLE = ("authorization", "x-api-key")
_COUNTED = ("POST", "PUT")
"""Methods of requests that make services compute, and so count toward the limit on requests."""
_GUARDED = ("/v1/", "/tokenize", "/detokenize", "/admin/")


def guarded(path: str) -> bool:
    """Whether requests for ``path`` need an admission."""
    return path.startswith(_GUARDED)


class Guard:
    """An ASGI application around the routes: each `guarded` request gets an `Admission` in its state."""

    def __init__(self, routes: ASGIApp, access: AccessControl) -> None:
        self._routes, self._access = routes, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admits a request and passes it on; raises as `AccessControl.admitted`."""
        if not guarded(scope["path"]):
            return await self._routes(scope, receive, send)
        state, counts = scope["state"], scope["method"] in _COUNTED
        async with self._access.admitted(sender_of(scope, "http"), state["headers"], counts=counts) as admission:
            state["admission"] = admission
            await self._routes(scope, receive, send)


def sender_of(scope: Scope, api: str) -> Sender:
    """The sender of a request that came over ``api``; raises `InvalidRequest` for several keys."""
    headers = Headers(scope=scope)
    for name in _SINGLE:
        if len(headers.getlist(name)) > 1:
            raise InvalidRequest(f"the header {name} is given several times: give it once", param=name)
    return Sender(
        api=api,
        peer=scope["client"][0] if scope.get("client") else "",
        authorization=headers.get("authorization", ""),
        api_key=headers.get("x-api-key", ""),
        forwarded=headers.getlist("x-forwarded-for"),
        request=scope["state"]["request_id"],
    )
