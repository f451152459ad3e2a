"""Reads requests that come over NATS, and answers them with errors."""

from __future__ import annotations

import hashlib
from secrets import token_hex
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta
from outrider.gateway.admission.access_control import Sender
from outrider.gateway.api.http.messages import require_plain
from outrider.gateway.api.openai.bodies import ShapedGeneration, read_body_of_any_kind
from outrider.gateway.api.schema.parameters import read, read_object
from outrider.gateway.errors import TooLarge, error_answer, error_headers
from outrider.mesh.bus import Query
from outrider.mesh.errors import InvalidRequest, OutriderError
from outrider.wire.frames import token_subject
from outrider.wire.subjects import GENERATE

_PREFIX_DIGITS = 12

_Seconds = Annotated[float, Meta(gt=0, le=86400, description="a number of seconds above 0")]
_Id = Annotated[str, Meta(description="the id of a request")]


class GenerateQuery(NamedTuple):
    """A request for a generation.

    ``chosen`` says that the client chose the request's id. The request ends after ``timeout_s`` seconds, if given.
    """

    request_id: str
    chosen: bool
    shaped: ShapedGeneration
    timeout_s: float | None


class NatsParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a generation that the HTTP API does not have."""

    request_id: Annotated[str, Meta(pattern="^[A-Za-z0-9_]{1,40}$", description="up to 40 letters, digits and '_'")] = (
        ""
    )
    timeout_s: _Seconds | None = None


class RequestBody(msgspec.Struct, frozen=True):
    """A body that names an existing request."""

    request_id: _Id


class ResumeBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body that resumes a request, from one token index for all choices, or from one index for each choice."""

    request_id: _Id
    from_index: Annotated[list[int], Meta(description="an array of indices of tokens")] = []


def id_prefix(tenant: str) -> str:
    """The prefix of the request ids that a tenant chooses; ids of other tenants never begin with it."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:_PREFIX_DIGITS] + "-"


def subject_prefix(tenant: str) -> str:
    """The subject of the frames of a chosen request id, without that id at its end."""
    return token_subject(tenant, id_prefix(tenant))


def read_generate(query: Query, tenant: str, limit: int, ignored: list[str] | None) -> GenerateQuery:
    """The generation that ``query`` asks for: a body of the HTTP API, read as `read_body_of_any_kind` does.

    The body may hold `NatsParameters` too. Raises `TooLarge` for more than ``limit`` bytes, else `InvalidRequest`.
    """
    if len(query.data) > limit:
        raise TooLarge(f"the body is larger than {limit} bytes")
    require_plain(query.data)
    body = read_object(query.data)
    own = {name: body.pop(name) for name in NatsParameters.__struct_fields__ if name in body}
    extra = read(own, NatsParameters)
    if body.get("stream") is False:
        raise InvalidRequest("stream must be true or absent: over NATS every answer is a stream", param="stream")
    shaped = read_body_of_any_kind(body | {"stream": True} | _model(query.subject, body), ignored)
    request_id = id_prefix(tenant) + extra.request_id if extra.request_id else token_hex(16)
    return GenerateQuery(request_id, bool(extra.request_id), shaped, extra.timeout_s)


def read_request_id(query: Query) -> str:
    """The request id in a `RequestBody`; raises `InvalidRequest`."""
    require_plain(query.data)
    return read(query.data, RequestBody).request_id


def read_resume(query: Query) -> ResumeBody:
    """The `ResumeBody` in ``query``; raises `InvalidRequest`."""
    require_plain(query.data)
    return read(query.data, ResumeBody)


def sender(query: Query) -> Sender:
    """The sender of ``query``, without an address: NATS does not report addresses."""
    headers = query.headers
    return Sender(api="nats", authorization=headers.get("authorization", ""), api_key=headers.get("x-api-key", ""))


async def refuse(query: Query, error: OutriderError, headers: dict[str, str]) -> None:
    """Answers with ``error`` as the HTTP API's error object; ``headers`` and those of the error go with it."""
    all_headers = headers | error_headers(error)
    await query.refuse(error.http_status, error.message, msgspec.json.encode(error_answer(error)), all_headers)


def _model(subject: str, body: dict[str, Any]) -> dict[str, str]:
    """The parameter ``model`` that the subject names; no parameter if it names none."""
    name = subject.removeprefix(GENERATE).removeprefix(".")
    if not name:
        return {}
    if body.get("model") not in (None, name):
        raise InvalidRequest(f"model is another than {name}, which the subject names", param="model")
    return {"model": name}
