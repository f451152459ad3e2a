"""The echo over plain HTTP: OpenAI's completions and chats, whole and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

TEXT = " echo"
"""Text of every token."""


class _Body(msgspec.Struct):
    model: str = ""
    max_tokens: int = 16
    stream: bool = False


_body = msgspec.json.Decoder(_Body).decode
_encode = msgspec.json.Encoder().encode


async def _completions(request: Request) -> Response:
    return _answer(_body(await request.body()), "text_completion", "text_completion", _text, _text)


async def _chat(request: Request) -> Response:
    return _answer(_body(await request.body()), "chat.completion", "chat.completion.chunk", _message, _delta)


async def _models(request: Request) -> Response:
    return _json({"object": "list", "data": []})


def _answer(body: _Body, whole: str, part: str, choice: Any, delta: Any) -> Response:
    if body.stream:
        return StreamingResponse(_events(body, part, delta), media_type="text/event-stream")
    used = {"prompt_tokens": 1, "completion_tokens": body.max_tokens, "total_tokens": 1 + body.max_tokens}
    answer = choice(TEXT * body.max_tokens) | {"index": 0, "finish_reason": "length"}
    return _json(_head(body, whole) | {"choices": [answer], "usage": used})


async def _events(body: _Body, part: str, delta: Any) -> AsyncIterator[bytes]:
    for index in range(body.max_tokens):
        finish = "length" if index == body.max_tokens - 1 else None
        chunk = delta(TEXT) | {"index": 0, "finish_reason": finish}
        yield b"data: %b\n\n" % _encode(_head(body, part) | {"choices": [chunk]})
    yield b"data: [DONE]\n\n"


def _head(body: _Body, kind: str) -> dict[str, Any]:
    return {"id": "echo", "object": kind, "created": 0, "model": body.model}


def _text(text: str) -> dict[str, Any]:
    return {"text": text, "logprobs": None}


def _message(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}}


def _delta(text: str) -> dict[str, Any]:
    return {"delta": {"role": "assistant", "content": text}}


def _json(value: dict[str, Any]) -> Response:
    return Response(_encode(value), media_type="application/json")


app = Router(
    [
        Route("/v1/completions", _completions, methods=["POST"]),
        Route("/v1/chat/completions", _chat, methods=["POST"]),
        Route("/v1/models", _models, methods=["GET"]),
    ]
)
"""An ASGI application."""
