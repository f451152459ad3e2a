"""Requests over gRPC as the bodies of the HTTP API, which are checked in one place for all front doors."""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from outrider.gateway.doors.http.plain_json import require_plain
from outrider.gateway.doors.openai.asked import Asked, read_asked
from outrider.gateway.errors import TooLarge
from outrider.mesh.errors import InvalidRequest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.sampling_pb2 import SamplingParams, Speculation
from outrider.wire.ids import unpack_ids

_SIGN = 1 << 63
_GRAMMARS = {"json_schema": "json", "regex": "regex", "context_free": "grammar"}
_TOKENS = {"add_special": "add_special_tokens", "parse_special": "parse_special_tokens"}
_JSON = {"messages_json": "messages", "tools_json": "tools", "tool_choice_json": "tool_choice"}


def asked(request: pb.GenerateRequest, limit: int) -> Asked:
    """What is asked for; `InvalidRequest` as over HTTP, `TooLarge` for more than ``limit`` bytes.

    A field that is not known here is refused, too.
    """
    require_readable(request, limit)
    return read_asked(msgspec.json.encode(_body(request)))


def require_readable(message: Message, limit: int) -> None:
    """`TooLarge` for more than ``limit`` bytes, `InvalidRequest` for a field of a later version."""
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
    body: dict[str, Any] = {"return_tokens": request.return_tokens}
    if request.model:
        body["model"] = request.model
    body["return_drafts"] = request.speculation.return_drafts
    for name in ("n", "priority", "parallel_tool_calls", "ttft_ms", "timeout_ms", "coalesce"):
        if request.HasField(name):
            body[name] = getattr(request, name)
    for name, parameter in _TOKENS.items():
        if request.HasField(name):
            body[parameter] = getattr(request, name)
    for name, parameter in _JSON.items():
        if text := getattr(request, name):
            body[parameter] = _json(text, name)
    body |= _prompt(request) | _sampling(request.sampling, "messages" in body)
    if words := [*request.bad_words, *(_ids(word.ids, "bad_words") for word in request.sampling.bad_words)]:
        body["bad_words"] = words
    if request.HasField("speculation"):
        body["speculation"] = _speculation(request.speculation)
    return body


def _prompt(request: pb.GenerateRequest) -> dict[str, Any]:
    kind = request.WhichOneof("prompt")
    if kind == "text":
        return {"prompt": request.text}
    return {"prompt": _ids(request.ids, "ids")} if kind == "ids" else {}


def _sampling(sampling: SamplingParams, chat: bool) -> dict[str, Any]:
    """As JSON has it: what is unset is absent, floats are as short as they can be, and NaN is no number."""
    found: dict[str, Any] = MessageToDict(sampling, preserving_proto_field_name=True)
    found.pop("bad_words", None)
    if "seed" in found:
        seed = int(found["seed"])
        found["seed"] = seed - 2 * _SIGN if seed >= _SIGN else seed
    if "logprobs" in found and chat:
        found |= {"logprobs": True, "top_logprobs": found["logprobs"]}
    if sampling.HasField("grammar"):
        found["structured_outputs"] = _structure(found.pop("grammar"))
    return found


def _structure(grammar: dict[str, Any]) -> dict[str, Any]:
    if "choice" in grammar:
        return {"choice": grammar["choice"].get("texts", [])}
    return {_GRAMMARS[kind]: definition for kind, definition in grammar.items()}


def _speculation(wanted: Speculation) -> Any:
    if not wanted.off:
        return {"drafters": list(wanted.drafters), "max_nodes": wanted.max_nodes or None}
    if wanted.drafters or wanted.max_nodes:
        raise InvalidRequest("speculation: off may not be given with drafters or max_nodes", param="speculation")
    return "off"


def _ids(data: bytes, name: str) -> list[int]:
    try:
        return unpack_ids(data)
    except ValueError as error:
        raise InvalidRequest(f"{name}: {error}", param=name) from None


def _json(text: str, name: str) -> Any:
    require_plain(text.encode(), name)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name} is not valid JSON: {error}", param=name) from None
