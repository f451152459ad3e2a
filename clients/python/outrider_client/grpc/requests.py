"""Converts parameters of the HTTP API to requests over gRPC."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Any

from outrider_client.calls import Messages, Prompt, body
from outrider_client.grpc.methods import METHODS

_UNSIGNED = (1 << 64) - 1
_PLAIN = (
    *("model", "n", "priority", "parallel_tool_calls", "return_tokens"),
    *("ttft_ms", "timeout_ms", "coalesce"),
    *("enable_thinking", "reasoning_effort", "thinking_token_budget", "include_reasoning"),
)
_SHAPED = ("seed", "stop", "logit_bias", "bad_words", "logprobs", "grammar", "thought")
_SAMPLING = METHODS["Generate"].request.DESCRIPTOR.fields_by_name["sampling"].message_type
_DRAWING = tuple(field.name for field in _SAMPLING.fields if field.name not in _SHAPED)
"""Parameters that have the same form over HTTP and in ``SamplingParams``."""
_GRAMMARS = {"regex": "regex", "grammar": "context_free"}
_ANY_OBJECT = '{"type":"object"}'


def generation(prompt: Prompt | None, messages: Messages | None, parameters: Mapping[str, Any]) -> Any:
    """The request for a completion of ``prompt`` or an answer to ``messages``.

    Parameters are those of the HTTP API; `TypeError` or `ValueError` for a parameter that gRPC does not support.
    """
    fields, request = body(prompt, messages, parameters), METHODS["Generate"].request()
    if messages is not None:
        request.messages_json = json.dumps(list(fields.pop("messages")))
    elif isinstance(content := fields.pop("prompt"), str):
        request.text = content
    else:
        request.ids = _packed(content)
    for name in _PLAIN:
        if name in fields:
            setattr(request, name, fields.pop(name))
    for name in ("add_special", "parse_special"):
        if f"{name}_tokens" in fields:
            setattr(request, name, fields.pop(f"{name}_tokens"))
    for name in ("tools", "tool_choice"):
        if name in fields:
            setattr(request, f"{name}_json", json.dumps(fields.pop(name)))
    if prediction := fields.pop("prediction", None):
        content = prediction["content"]
        request.prediction = content if isinstance(content, str) else "".join(part["text"] for part in content)
    _speculate(request, fields)
    _draw(request, fields, chat=messages is not None)
    if fields:
        raise TypeError(f"{next(iter(fields))} is no parameter over gRPC")
    return request


def completion(request: Any) -> Any:
    """The request for the whole answer at once."""
    return METHODS["Complete"].request(request=request)


def with_linger(request: Any) -> Any:
    """The request, with a generation that continues for a while after its connection breaks."""
    request.linger = True
    return request


def _speculate(request: Any, fields: dict[str, Any]) -> None:
    speculation = fields.pop("speculation", {})
    if speculation == "off":
        request.speculation.off = True
    elif speculation:
        request.speculation.drafters.extend(speculation.get("drafters", []))
        request.speculation.max_nodes = speculation.get("max_nodes") or 0
        request.speculation.private = speculation.get("private", False)
    if fields.pop("return_drafts", False):
        request.speculation.return_drafts = True


def _draw(request: Any, fields: dict[str, Any], *, chat: bool) -> None:
    sampling = request.sampling
    if "max_completion_tokens" in fields:
        fields["max_tokens"] = fields.pop("max_completion_tokens")
    for name in [name for name in _DRAWING if name in fields]:
        value = fields.pop(name)
        if isinstance(value, (list, tuple)):
            getattr(sampling, name).extend(value)
        else:
            setattr(sampling, name, value)
    if "seed" in fields:
        sampling.seed = fields.pop("seed") & _UNSIGNED
    stop = fields.pop("stop", [])
    sampling.stop.extend([stop] if isinstance(stop, str) else stop)
    for token, bias in fields.pop("logit_bias", {}).items():
        sampling.logit_bias[int(token)] = bias
    for word in fields.pop("bad_words", []):
        if isinstance(word, str):
            request.bad_words.append(word)
        else:
            sampling.bad_words.add(ids=_packed(word))
    logprobs, top = fields.pop("logprobs", None), fields.pop("top_logprobs", 0) if chat else 0
    if logprobs is not None and logprobs is not False:
        sampling.logprobs = top if chat else logprobs
    _structure(sampling, fields)


def _structure(sampling: Any, fields: dict[str, Any]) -> None:
    outputs, form = dict(fields.pop("structured_outputs", {})), fields.pop("response_format", {})
    if form.get("type") == "json_schema":
        outputs["json"] = form["json_schema"]["schema"]
    elif form.get("type") == "json_object":
        outputs |= {"json": form["schema"]} if form.get("schema") is not None else {"json_object": True}
    for kind, value in outputs.items():
        if kind == "choice":
            sampling.grammar.choice.texts.extend(value)
        elif kind == "json_object":
            sampling.grammar.json_schema = _ANY_OBJECT
        elif kind == "json":
            sampling.grammar.json_schema = value if isinstance(value, str) else json.dumps(value)
        else:
            setattr(sampling.grammar, _GRAMMARS[kind], value)


def _packed(ids: Sequence[int]) -> bytes:
    packed = array("i", ids)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
