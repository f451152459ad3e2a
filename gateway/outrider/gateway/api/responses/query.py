"""The query parameters of a stored response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta
from outrider.gateway.api.schema.parameters import read_query as read_parameters
from outrider.mesh.errors import InvalidRequest
from outrider.wire.bounds import INT32


class ResponseQuery(msgspec.Struct, frozen=True):
    """Parameters of ``GET /v1/responses/{id}``."""

    stream: Annotated[bool, Meta(description="true or false")] = False
    include_obfuscation: Annotated[bool, Meta(description="true or false")] = False
    starting_after: Annotated[int, Meta(ge=0, le=INT32, description="the sequence_number of an event")] = -1


def read_query(query: Mapping[str, str]) -> ResponseQuery:
    """The parameters in ``query``; raises `InvalidRequest`."""
    parameters = read_parameters(query, ResponseQuery)
    if "starting_after" in query and not parameters.stream:
        raise InvalidRequest("starting_after may only be given where stream is true", param="starting_after")
    return parameters
