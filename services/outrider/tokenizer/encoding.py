"""Checks and encodes one request, and refuses texts over the limit of tokens before encoding them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from outrider.engine.text import TextError, Tokenizer
from outrider.engine.text.chat import Part
from outrider.engine.text.errors import NotRendered
from outrider.mesh.errors import ContextExceeded, InvalidRequest, Unavailable
from outrider.v1 import tokenizer_pb2 as pb
from outrider.wire.ids import pack_ids

_PLACE = re.compile(r"messages\[[\w.\[\]]+")
"""A part of a message, with which errors about it begin."""


def size(request: pb.EncodeRequest) -> int:
    """Characters of text in ``request``: a measure of the cost of encoding it."""
    return sum(len(_whole(item)) + _size(item.chat) for item in request.inputs)


def _whole(item: pb.EncodeInput) -> str:
    """All text of an input that is no chat."""
    files = (part for file in item.files for part in (file.name, file.text))
    return "".join((*files, item.text, item.suffix))


def _size(chat: pb.Chat) -> int:
    return len(chat.messages_json) + len(chat.tools_json) + len(chat.template_kwargs_json) + len(chat.template)


def begin(tokenizer: Tokenizer, request: pb.EncodeRequest) -> Future[list[Part]] | None:
    """Begins to render the chat of ``request``, for `encode`, within about a millisecond.

    None for a request that is no single chat, and where `encode` has to wait for the rendering or refuses the chat.
    """
    if len(_prompts(request)) != 1 or not request.inputs[0].HasField("chat"):
        return None
    try:
        return tokenizer.begin_chat(*_read(request.inputs[0].chat))
    except (TextError, InvalidRequest):
        return None


def encode(
    tokenizer: Tokenizer, request: pb.EncodeRequest, rendered: Future[list[Part]] | None = None
) -> pb.EncodeResponse:
    """Ids of every input; `InvalidRequest` reports the first refused input.

    ``rendered`` is what `begin` returned.
    """
    if request.max_tokens < 0:
        raise InvalidRequest(f"max_tokens must be 0 or more, not {request.max_tokens}", param="max_tokens")
    encoder = _Encoder(tokenizer, request.max_tokens or tokenizer.context_length, rendered)
    several = len(_prompts(request)) > 1
    outputs = [_encoded(encoder, item, place if several else None) for place, item in enumerate(request.inputs)]
    return pb.EncodeResponse(outputs=outputs)


def _prompts(request: pb.EncodeRequest) -> list[pb.EncodeInput]:
    """The inputs without a name of their own."""
    return [item for item in request.inputs if not item.param]


def _encoded(encoder: _Encoder, item: pb.EncodeInput, place: int | None) -> pb.EncodedInput:
    """Encodes an input; an error about one of several prompts names its ``place``."""
    try:
        return pb.EncodedInput(ids=pack_ids(encoder(item)))
    except InvalidRequest as error:
        raise error if place is None or item.param else error.at_index(place) from None


class _Encoder:
    def __init__(self, tokenizer: Tokenizer, limit: int | None, rendered: Future[list[Part]] | None) -> None:
        self._tokenizer, self._rendered = tokenizer, rendered
        self._limit = limit

    def __call__(self, item: pb.EncodeInput) -> list[int]:
        param = item.param or ("messages" if item.HasField("chat") else "prompt")
        try:
            self._tokenizer.require_special(item.require_special)
            ids = self._chat(item.chat) if item.HasField("chat") else self._text(item, param)
        except NotRendered as error:
            raise Unavailable(str(error), retry_after=1.0) from None
        except TextError as error:
            place = _PLACE.match(str(error)) if param == "messages" else None
            raise InvalidRequest(str(error), param=place[0] if place else param) from None
        if self._limit is not None and len(ids) > self._limit:
            raise self._too_long(param, f"{len(ids)}")
        return ids

    def _text(self, item: pb.EncodeInput, param: str) -> list[int]:
        self._refuse_early(_whole(item), param)
        if item.HasField("suffix"):
            return self._tokenizer.encode_infill(
                item.text,
                item.suffix,
                [(file.name, file.text) for file in item.files],
                parse_special=item.parse_special,
                add_special=item.add_special,
            )
        return self._tokenizer.encode(item.text, parse_special=item.parse_special, add_special=item.add_special)

    def _chat(self, chat: pb.Chat) -> list[int]:
        parts = self._rendered.result() if self._rendered else self._tokenizer.chat_parts(*_read(chat))
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


def _read(chat: pb.Chat) -> tuple[Sequence[Any], Sequence[Any] | None, bool, dict[str, Any] | None, bool, str]:
    """The arguments of `Tokenizer.chat_parts`."""
    messages, tools = _json_list(chat.messages_json, "messages"), _json_list(chat.tools_json or "[]", "tools")
    variables = _json_object(chat.template_kwargs_json or "{}", "chat_template_kwargs")
    asked = chat.add_generation_prompt, variables or None, chat.continue_final_message
    return messages, tools or None, *asked, chat.template


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
