"""Access control of the admin API, and its lines in the audit log."""

from __future__ import annotations

import msgspec
from outrider.gateway.admission.access_control import AccessControl
from outrider.gateway.admission.caller import Caller
from outrider.gateway.api.http.edge import guarded, sender_of
from outrider.mesh.errors import Internal, OutriderError
from outrider.mesh.telemetry import audit
from outrider.mesh.telemetry.audit_record import Event, Outcome
from outrider.wire.tenants import without_secrets
from starlette.types import ASGIApp, Receive, Scope, Send

_API = "admin"


class Call(msgspec.Struct):
    """One call of the admin API, for the audit log. Routes set ``target``, once it is checked: what is called for."""

    caller: Caller
    address: str
    request: str
    tenant: str = ""
    target: str = ""

    def note(self, event: Event, subject: str, *, outcome: Outcome = "done", reason: str = "") -> None:
        """Writes an event of this call."""
        audit(
            event,
            outcome=outcome,
            actor=self.caller.actor,
            tenant=without_secrets(self.tenant),
            door=_API,
            address=self.address,
            subject=without_secrets(subject),
            reason=without_secrets(reason),
            request=self.request,
        )


class AdminGuard:
    """An ASGI application around the routes: each `guarded` request of an administrator gets a `Call` in its state."""

    def __init__(self, routes: ASGIApp, access: AccessControl) -> None:
        self._routes, self._access = routes, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on; raises as `AccessControl.admitted`."""
        if not guarded(scope["path"]):
            return await self._routes(scope, receive, send)
        state, sender = scope["state"], sender_of(scope, _API)
        async with self._access.admitted(sender, state["headers"], counts=False) as admission:
            call = state["call"] = Call(admission.caller, self._access.address(sender), sender.request)
            await self._note(call, scope, receive, send)

    async def _note(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        outcome: Outcome = "failed"
        reason = Internal().message
        try:
            await self._routes(scope, receive, send)
            outcome, reason = "done", ""
        except OutriderError as error:
            reason = error.message
            raise
        finally:
            call.note("admin_call", _subject(call, scope), outcome=outcome, reason=reason)


def _subject(call: Call, scope: Scope) -> str:
    """Method, the route's pattern and target: a path as the client wrote it might hold a key."""
    route = scope.get("route")
    return f"{scope['method']} {route.path if route is not None else '(no such path)'} {call.target}".strip()
