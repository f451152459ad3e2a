"""The parameters, answers and errors of the admin API, as the types that its routes use."""

from __future__ import annotations

from typing import Any

from outrider.gateway.admission.usage import Usage
from outrider.gateway.api.admin.json_types import (
    KeyBody,
    KeyRecord,
    KeyRecords,
    NewKey,
    RotateBody,
    TenantBody,
    TenantQuery,
    TenantRecord,
    TenantRecords,
)
from outrider.gateway.api.openapi.operations import READ_ERRORS, BodySpec, Errors, Operation
from outrider.mesh.errors import AlreadyExists, FailedPrecondition, InvalidRequest, NotFound
from outrider.wire.tenants import Limits

_OF_A_TENANT = TenantQuery
_FOUND: Errors = (InvalidRequest, NotFound)
_SWITCHED: Errors = (*_FOUND, AlreadyExists)
_CHANGED: Errors = (*READ_ERRORS, NotFound, FailedPrecondition, AlreadyExists)

ADMIN_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/admin/v1/tenants"): Operation("All tenants.", answer=TenantRecords),
    ("GET", "/admin/v1/tenants/{name}"): Operation("A tenant and its limits.", answer=TenantRecord, errors=_FOUND),
    ("PUT", "/admin/v1/tenants/{name}"): Operation(
        "Creates a tenant, or replaces all its limits.",
        BodySpec(TenantBody, example={"limits": {"tokens_per_minute": 60000}}, refined={"limits": Limits}),
        answer=TenantRecord,
        errors=_CHANGED,
    ),
    ("POST", "/admin/v1/tenants/{name}/disable"): Operation(
        "Refuses a tenant's keys and tokens, and ends its running requests.", answer=TenantRecord, errors=_SWITCHED
    ),
    ("POST", "/admin/v1/tenants/{name}/enable"): Operation(
        "Serves a disabled tenant again.", answer=TenantRecord, errors=_SWITCHED
    ),
    ("GET", "/admin/v1/keys"): Operation(
        "All keys, without their secrets.", query=_OF_A_TENANT, answer=KeyRecords, errors=_FOUND
    ),
    ("POST", "/admin/v1/keys"): Operation(
        "Creates a key, and shows it this once.",
        BodySpec(KeyBody, example={"tenant": "acme", "expires_s": 7776000}, refined={"limits": Limits}),
        answer=NewKey,
        errors=_CHANGED,
    ),
    ("GET", "/admin/v1/keys/{id}"): Operation("A key, without its secret.", answer=KeyRecord, errors=_FOUND),
    ("POST", "/admin/v1/keys/{id}/rotate"): Operation(
        "Creates a key like an old one, and shows it this once; the old key expires after the grace period.",
        BodySpec(RotateBody, example={"grace_s": 3600}),
        answer=NewKey,
        errors=_CHANGED,
    ),
    ("POST", "/admin/v1/keys/{id}/revoke"): Operation("Ends a key for good.", answer=KeyRecord, errors=_SWITCHED),
    ("GET", "/admin/v1/usage"): Operation(
        "What was used of limits.", query=_OF_A_TENANT, answer=Usage, errors=(*_FOUND, FailedPrecondition)
    ),
    ("GET", "/openapi.json"): Operation("This document.", answer=dict[str, Any]),
}
