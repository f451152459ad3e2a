"""Requests over NATS: what they hold, and how they are answered."""

from __future__ import annotations

import hashlib
from secrets import token_hex
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta
from outrider.gateway.admission.entrance import Visitor
from outrider.gateway.doors.http.plain_json import require_plain
from outrider.gateway.doors.openai.asked import Asked, read_asked
from outrider.gateway.doors.schema.parameters import read, read_object
from outrider.gateway.errors import TooLarge, error_answer, error_headers
from outrider.mesh.bus import Query
from outrider.mesh.errors import InvalidRequest, OutriderError
from outrider.wire.frames import token_subject

GENERATE = "outrider.v1.generate"

_TAG = 12


_Seconds = Annotated[float, Meta(gt=0, le=86400, description="a number of seconds above 0")]
_Id = Annotated[str, Meta(description="the id of a request")]


class Begin(NamedTuple):
    """A request for a generation; ``chosen`` says that its asker has named it, ``timeout_s`` when it is to be ended."""

    request_id: str
    chosen: bool
    asked: Asked
    timeout_s: float | None


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the body of a generation may hold beside the parameters of the HTTP API."""

    request_id: Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,40}$", description="up to 40 letters, digits and '_'")] = (
        ""
    )
    timeout_s: _Seconds | None = None


class Named(msgspec.Struct, frozen=True):
    """The body of what is asked about a request that there is."""

    request_id: _Id


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request to go on with one: from which index, of all choices or of each."""

    request_id: _Id
    from_index: Annotated[list[int], Meta(description="an array of indices of tokens")] = []


def prefix(tenant: str) -> str:
    """What the names that a tenant chooses begin with: no other tenant can choose, or be given, such a name."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:_TAG] + "-"


def subject_prefix(tenant: str) -> str:
    """Before a chosen name, the subject of its frames."""
    return token_subject(tenant, prefix(tenant))


def begin(query: Query, tenant: str, limit: int, ignored: list[str] | None) -> Begin:
    """What is asked for: a body of the HTTP API, as `read`, and perhaps the name of the request; `InvalidRequest`."""
    if len(query.data) > limit:
        raise TooLarge(f"the body is larger than {limit} bytes")
    require_plain(query.data)
    body = read_object(query.data)
    beside = {name: body.pop(name) for name in Wishes.__struct_fields__ if name in body}
    wishes = read(beside, Wishes)
    if body.get("stream") is False:
        raise InvalidRequest("stream must be true or absent: over NATS every answer is a stream", param="stream")
    asked = read_asked(body | {"stream": True} | _model(query.subject, body), ignored)
    request_id = prefix(tenant) + wishes.request_id if wishes.request_id else token_hex(16)
    return Begin(request_id, bool(wishes.request_id), asked, wishes.timeout_s)


def named(query: Query) -> str:
    """The id of a request that there is."""
    require_plain(query.data)
    return read(query.data, Named).request_id


def taken(query: Query) -> Taken:
    """A request to go on with one."""
    require_plain(query.data)
    return read(query.data, Taken)


def visitor(query: Query) -> Visitor:
    """Who asks: NATS does not tell from where."""
    headers = query.headers
    return Visitor(authorization=headers.get("authorization", ""), api_key=headers.get("x-api-key", ""))


async def refuse(query: Query, error: OutriderError, headers: dict[str, str]) -> None:
    """Answers with the HTTP API's error, and what its headers would say."""
    told = headers | error_headers(error)
    await query.refuse(error.http_status, error.message, msgspec.json.encode(error_answer(error)), told)


def _model(subject: str, body: dict[str, Any]) -> dict[str, str]:
    """The model that the subject names, if it does."""
    name = subject.removeprefix(GENERATE).removeprefix(".")
    if not name:
        return {}
    if body.get("model") not in (None, name):
        raise InvalidRequest(f"model is another than {name}, which the subject names", param="model")
    return {"model": name}
