"""Checks and encodes one request, and refuses texts over the limit of tokens before encoding them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from outrider.mesh.errors import ContextExceeded, InvalidRequest
from outrider.models.text import TextError, Tokenizer
from outrider.v1 import tokenizer_pb2 as pb
from outrider.wire.ids import pack_ids

_PLACE = re.compile(r"messages\[[\w.\[\]]+")
"""A part of a message, with which errors about it begin."""


def size(request: pb.EncodeRequest) -> int:
    """Characters of text in ``request``: a measure of the cost of encoding it."""
    return sum(len(item.text) + _size(item.chat) for item in request.inputs)


def _size(chat: pb.Chat) -> int:
    return len(chat.messages_json) + len(chat.tools_json) + len(chat.template_kwargs_json)


def encode(tokenizer: Tokenizer, request: pb.EncodeRequest) -> pb.EncodeResponse:
    """Ids of every input; `InvalidRequest` reports the first refused input."""
    if request.max_tokens < 0:
        raise InvalidRequest(f"max_tokens must be 0 or more, not {request.max_tokens}", param="max_tokens")
    encoder = _Encoder(tokenizer, request.max_tokens or tokenizer.context_length)
    if len(request.inputs) == 1:
        return pb.EncodeResponse(outputs=[pb.EncodedInput(ids=pack_ids(encoder(request.inputs[0])))])
    outputs = [_among(encoder, item, place) for place, item in enumerate(request.inputs)]
    return pb.EncodeResponse(outputs=outputs)


def _among(encoder: _Encoder, item: pb.EncodeInput, place: int) -> pb.EncodedInput:
    """Encodes one of several inputs; an error names its place."""
    try:
        return pb.EncodedInput(ids=pack_ids(encoder(item)))
    except InvalidRequest as error:
        raise error.at_index(place) from None


class _Encoder:
    def __init__(self, tokenizer: Tokenizer, limit: int | None) -> None:
        self._tokenizer = tokenizer
        self._limit = limit

    def __call__(self, item: pb.EncodeInput) -> list[int]:
        param = "messages" if item.HasField("chat") else "prompt"
        try:
            self._tokenizer.require_special(item.require_special)
            ids = self._chat(item.chat) if param == "messages" else self._text(item)
        except TextError as error:
            place = _PLACE.match(str(error)) if param == "messages" else None
            raise InvalidRequest(str(error), param=place[0] if place else param) from None
        if self._limit is not None and len(ids) > self._limit:
            raise self._too_long(param, f"{len(ids)}")
        return ids

    def _text(self, item: pb.EncodeInput) -> list[int]:
        self._refuse_early(item.text, "prompt")
        return self._tokenizer.encode(item.text, parse_special=item.parse_special, add_special=item.add_special)

    def _chat(self, chat: pb.Chat) -> list[int]:
        messages, tools = _json_list(chat.messages_json, "messages"), _json_list(chat.tools_json or "[]", "tools")
        variables = _json_object(chat.template_kwargs_json or "{}", "chat_template_kwargs")
        parts = self._tokenizer.chat_parts(messages, tools or None, chat.add_generation_prompt, variables or None)
        self._refuse_early("".join(part.text for part in parts), "messages")
        return self._tokenizer.encode_parts(parts)

    def _refuse_early(self, text: str, param: str) -> None:
        """Refuses a text with more bytes than the limit of tokens can hold, before encoding it."""
        if self._limit is None or len(text) <= self._limit:
            return
        fewest = -(-len(text.encode(errors="replace")) // self._tokenizer.longest_token)
        if fewest > self._limit:
            raise self._too_long(param, f"at least {fewest}")

    def _too_long(self, param: str, tokens: str) -> InvalidRequest:
        if self._limit == self._tokenizer.context_length:
            why = f"{tokens} tokens are too many; this model's maximum context length is {self._limit} tokens"
            return ContextExceeded(f"{param}: {why}", param=param)
        return InvalidRequest(f"{param}: {tokens} tokens are over the limit of {self._limit} tokens", param=param)


def _json_list(text: str, param: str) -> Sequence[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{param} is not valid JSON: {error}", param=param) from None
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise InvalidRequest(f"{param} must be a JSON array of objects", param=param)
    return value


def _json_object(text: str, param: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{param} is not valid JSON: {error}", param=param) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be a JSON object", param=param)
    return value
