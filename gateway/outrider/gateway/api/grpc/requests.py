"""Turns requests over gRPC into the parameters of the HTTP API, which one place checks for all APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from outrider.gateway.api.http.messages import read_plain
from outrider.gateway.api.openai.bodies import ShapedGeneration, read_body_of_any_kind
from outrider.gateway.errors import TooLarge
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.bounds import OutOfBounds
from outrider.wire.sampling import ids_of, set_fields, set_sampling_fields

_GRAMMARS = {"json_schema": "json", "regex": "regex", "context_free": "grammar", "choice": "choice"}
_HTTP_NAMES = {
    "text": "prompt",
    "ids": "prompt",
    "messages_json": "messages",
    "tools_json": "tools",
    "tool_choice_json": "tool_choice",
    "add_special": "add_special_tokens",
    "parse_special": "parse_special_tokens",
}
"""Names in the HTTP API of the protocol's fields that have another name there."""


def read_generation(request: pb.GenerateRequest, limit: int) -> ShapedGeneration:
    """The generation that ``request`` asks for; raises as `require_readable`, and `InvalidRequest` as over HTTP."""
    require_readable(request, limit)
    try:
        return read_body_of_any_kind(_body(request), [])
    except OutOfBounds as error:
        raise InvalidRequest(str(error), param=error.param) from None


def require_readable(message: Message, limit: int) -> None:
    """Raises `TooLarge` for more than ``limit`` bytes, and `InvalidRequest` for a field that this version lacks."""
    if message.ByteSize() > limit:
        raise TooLarge(f"the request is larger than {limit} bytes")
    _require_known(message)


def _require_known(message: Message, place: str = "the request") -> None:
    for field in UnknownFieldSet(message):
        raise InvalidRequest(f"{place} holds a field with the number {field.field_number}, which is not known here")
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for inner in value if descriptor.is_repeated else [value]:
            _require_known(inner, descriptor.name)


def _body(request: pb.GenerateRequest) -> dict[str, Any]:
    """The parameters by their names in the HTTP API. Only the fields in `_CONVERSIONS` change their values."""
    body = {
        _HTTP_NAMES.get(name, name): _CONVERSIONS[name](value, name) if name in _CONVERSIONS else value
        for name, value in set_fields(request).items()
        if name != "linger"
    }
    words = body.pop("bad_words", [])
    body |= _speculation(body.pop("speculation", Speculation()))
    body |= _sampling(body.pop("sampling", SamplingParams()), chat="messages" in body)
    body["bad_words"] = words + body.get("bad_words", [])
    return body


def _sampling(message: SamplingParams, *, chat: bool) -> dict[str, Any]:
    """The sampling parameters in their JSON form."""
    parameters = set_sampling_fields(message)
    if chat and "logprobs" in parameters:
        parameters |= {"logprobs": True, "top_logprobs": parameters["logprobs"]}
    if "grammar" in parameters:
        parameters["structured_outputs"] = {
            _GRAMMARS[kind]: list(value.texts) if kind == "choice" else value
            for kind, value in set_fields(parameters.pop("grammar")).items()
        }
    return parameters


def _speculation(message: Speculation) -> dict[str, Any]:
    options = set_fields(message)
    drafts = options.pop("return_drafts", False)
    if not options.pop("off", False):
        return {"speculation": options, "return_drafts": drafts}
    if options:
        raise InvalidRequest(f"speculation: off may not be given with {' or '.join(options)}", param="speculation")
    return {"speculation": "off", "return_drafts": drafts}


_CONVERSIONS: dict[str, Callable[[Any, str], Any]] = {
    "ids": ids_of,
    "messages_json": read_plain,
    "tools_json": read_plain,
    "tool_choice_json": read_plain,
    "prediction": lambda text, _: {"type": "content", "content": text},
}
"""Conversions of fields whose values JSON writes in another form."""
