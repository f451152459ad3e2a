"""``/admin/v1``: tenants, keys and their use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from outrider.gateway.admission.usage import read_usage
from outrider.gateway.api.admin.guard import Call
from outrider.gateway.api.admin.json_types import (
    KeyBody,
    KeyId,
    KeyRecord,
    KeyRecords,
    NewKey,
    RotateBody,
    TenantBody,
    TenantName,
    TenantQuery,
    TenantRecord,
    read_limits,
)
from outrider.gateway.api.admin.json_types import TenantRecords as TenantList
from outrider.gateway.api.http.messages import json_response, read_body
from outrider.gateway.api.schema.parameters import convert, read, read_query
from outrider.mesh.bus import Bucket, Bus
from outrider.mesh.errors import AlreadyExists, FailedPrecondition, NotFound
from outrider.mesh.telemetry.audit_record import Event
from outrider.wire.subjects import LIMITS_BUCKET
from outrider.wire.tenant_records import Missing, TenantRecords, Unchangeable
from outrider.wire.tenants import BUCKET, Limits
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

T = TypeVar("T", bound=msgspec.Struct)
_MOST_BYTES = 64 << 10
_LEDGERS = "nats"


class AdminRoutes:
    """The routes of the admin API; ``limit_store`` is the setting: only `nats` has ledgers that can be read."""

    def __init__(self, bus: Bus, limit_store: str) -> None:
        self._records, self._ledgers = TenantRecords(Bucket(bus, BUCKET)), Bucket(bus, LIMITS_BUCKET)
        self._limit_store = limit_store
        self.routes = [
            Route("/admin/v1/tenants", self._list_tenants, methods=["GET"]),
            Route("/admin/v1/tenants/{name}", self._show_tenant, methods=["GET"]),
            Route("/admin/v1/tenants/{name}", self._set_tenant, methods=["PUT"]),
            Route("/admin/v1/tenants/{name}/disable", self._disable_tenant, methods=["POST"]),
            Route("/admin/v1/tenants/{name}/enable", self._enable_tenant, methods=["POST"]),
            Route("/admin/v1/keys", self._list_keys, methods=["GET"]),
            Route("/admin/v1/keys", self._create_key, methods=["POST"]),
            Route("/admin/v1/keys/{id}", self._show_key, methods=["GET"]),
            Route("/admin/v1/keys/{id}/rotate", self._rotate_key, methods=["POST"]),
            Route("/admin/v1/keys/{id}/revoke", self._revoke_key, methods=["POST"]),
            Route("/admin/v1/usage", self._show_usage, methods=["GET"]),
        ]

    async def _list_tenants(self, request: Request) -> Response:
        return json_response(TenantList([TenantRecord.of(tenant) for tenant in await self._records.tenants()]))

    async def _show_tenant(self, request: Request) -> Response:
        name = _name(request)
        with _as_answers():
            return json_response(TenantRecord.of(await self._records.tenant(name)))

    async def _set_tenant(self, request: Request) -> Response:
        """Creates a tenant, or replaces all its limits."""
        name, body = _name(request), await _body(request, TenantBody)
        limits = read_limits(body.limits)
        with _as_answers():
            tenant, created = await self._records.set_limits(name, lambda _: limits, time.time())
        event: Event = "tenant_created" if created else "tenant_changed"
        _call(request).note(event, f"tenant {name}", reason=_told(tenant.limits))
        return json_response(TenantRecord.of(tenant))

    async def _disable_tenant(self, request: Request) -> Response:
        """Refuses a tenant's keys and tokens, and ends its running requests."""
        return await self._switch(request, disabled=True)

    async def _enable_tenant(self, request: Request) -> Response:
        return await self._switch(request, disabled=False)

    async def _switch(self, request: Request, *, disabled: bool) -> Response:
        name = _name(request)
        with _as_answers():
            tenant, changed = await self._records.switch_tenant(name, time.time(), disabled=disabled)
        if changed:
            reason = "disabled" if disabled else "enabled"
            _call(request).note("tenant_changed", f"tenant {name}", reason=reason)
        return json_response(TenantRecord.of(tenant))

    async def _list_keys(self, request: Request) -> Response:
        tenant, now = _queried(request), time.time()
        with _as_answers():
            return json_response(KeyRecords([KeyRecord.of(key, now) for key in await self._records.keys(tenant)]))

    async def _create_key(self, request: Request) -> Response:
        body, now = await _body(request, KeyBody), time.time()
        _call(request).tenant = body.tenant
        limits = read_limits(body.limits)
        expires = None if body.expires_s is None else now + body.expires_s
        with _as_answers():
            key, text = await self._records.create_key(
                body.tenant, now, label=body.label, expires=expires, scopes=tuple(body.scopes), limits=limits
            )
        _call(request).note("key_created", f"key {key.id}", reason=_told(key.limits))
        return json_response(NewKey.made(key, text, now))

    async def _show_key(self, request: Request) -> Response:
        id_, now = _id(request), time.time()
        with _as_answers():
            return json_response(KeyRecord.of(await self._records.key(id_), now))

    async def _rotate_key(self, request: Request) -> Response:
        """Creates a key like an old one, which expires after the grace period."""
        id_, body, now = _id(request), await _body(request, RotateBody), time.time()
        with _as_answers():
            key, text, old = await self._records.rotate_key(id_, body.grace_s, now)
        _call(request).tenant = key.tenant
        _call(request).note("key_rotated", f"key {old.id}", reason=f"key {key.id} replaces it")
        return json_response(NewKey.made(key, text, now))

    async def _revoke_key(self, request: Request) -> Response:
        id_, now = _id(request), time.time()
        with _as_answers():
            key, changed = await self._records.revoke_key(id_, now)
        _call(request).tenant = key.tenant
        if changed:
            _call(request).note("key_revoked", f"key {key.id}")
        return json_response(KeyRecord.of(key, now))

    async def _show_usage(self, request: Request) -> Response:
        tenant = _queried(request)
        if self._limit_store != _LEDGERS:
            raise FailedPrecondition(f"use is read from ledgers in NATS, and limit_store is {self._limit_store}")
        with _as_answers():
            return json_response(await read_usage(self._records, self._ledgers, tenant, time.time()))


@contextmanager
def _as_answers() -> Iterator[None]:
    """Raises errors of the store as answers."""
    try:
        yield
    except Missing as error:
        raise NotFound(str(error)) from None
    except Unchangeable as error:
        raise FailedPrecondition(str(error)) from None
    except AlreadyExists as error:
        raise AlreadyExists(f"{error.message} at the same time: try again") from None


async def _body(request: Request, kind: type[T]) -> T:
    return read(await read_body(request, _MOST_BYTES) or b"{}", kind)


def _call(request: Request) -> Call:
    call: Call = request.state.call
    return call


def _name(request: Request) -> str:
    name = str(convert("name", request.path_params["name"], TenantName))
    _call(request).tenant, _call(request).target = name, name
    return name


def _id(request: Request) -> str:
    id_ = str(convert("id", request.path_params["id"], KeyId))
    _call(request).target = id_
    return id_


def _queried(request: Request) -> str | None:
    tenant = read_query(request.query_params, TenantQuery).tenant
    _call(request).tenant = tenant or ""
    return tenant


def _told(limits: Limits) -> str:
    return msgspec.json.encode(limits).decode()
