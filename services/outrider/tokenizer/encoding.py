"""One encode request: what it asks for, checked, and never more work than its limit is worth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outrider.mesh.errors import ContextExceeded, InvalidRequest
from outrider.models.text import TextError, Tokenizer
from outrider.v1 import tokenizer_pb2 as pb
from outrider.wire.ids import pack_ids


def size(request: pb.EncodeRequest) -> int:
    """Bytes of text in ``request``: what its encoding will cost."""
    return sum(len(i.text) + len(i.chat.messages_json) + len(i.chat.tools_json) for i in request.inputs)


def encode(tokenizer: Tokenizer, request: pb.EncodeRequest) -> pb.EncodeResponse:
    """Ids of every input; `InvalidRequest` names what is wrong with the first that is refused."""
    if request.max_tokens < 0:
        raise InvalidRequest(f"max_tokens must be 0 or more, not {request.max_tokens}", param="max_tokens")
    encoder = _Encoder(tokenizer, request.max_tokens or tokenizer.context_length)
    return pb.EncodeResponse(outputs=[pb.EncodedInput(ids=pack_ids(encoder(item))) for item in request.inputs])


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
            raise InvalidRequest(str(error), param=param) from None
        if self._limit is not None and len(ids) > self._limit:
            raise self._too_long(param, f"{len(ids)}")
        return ids

    def _text(self, item: pb.EncodeInput) -> list[int]:
        self._refuse_early(item.text, "prompt")
        return self._tokenizer.encode(item.text, parse_special=item.parse_special, add_special=item.add_special)

    def _chat(self, chat: pb.Chat) -> list[int]:
        messages, tools = _json_list(chat.messages_json, "messages"), _json_list(chat.tools_json or "[]", "tools")
        parts = self._tokenizer.chat_parts(messages, tools or None, chat.add_generation_prompt)
        self._refuse_early("".join(part.text for part in parts), "messages")
        return self._tokenizer.encode_parts(parts)

    def _refuse_early(self, text: str, param: str) -> None:
        """Refuses a text with more bytes than its limit of tokens can hold, before it costs anything."""
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
