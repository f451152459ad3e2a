"""OpenAI's bodies where no path says what they are of: with messages they are of a chat, else of a completion."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from outrider.gateway.doors.openai.bodies import read_chat, read_completion
from outrider.gateway.doors.openai.stored_form import Shape
from outrider.gateway.doors.schema.ignored import told
from outrider.gateway.requests.request import Generation


class Asked(NamedTuple):
    """What is to be generated, and the shape in which whoever resumes it over HTTP is told of it."""

    generation: Generation
    shape: Shape


class _Kind(msgspec.Struct):
    messages: Any = None


def read_asked(data: bytes, ignored: list[str] | None = None) -> Asked:
    """The body ``data``, as `read`; `InvalidRequest` says what is wrong with it."""
    if _is_chat(data):
        chat = read_chat(data, ignored)
        shape = Shape(
            "chat", chat.functions, chat.return_tokens, include_usage=True, bare=chat.bare, ignored=told(ignored)
        )
        return Asked(chat.generation(), shape)
    body = read_completion(data, ignored)
    shape = Shape("completion", (), body.return_tokens, include_usage=True, ignored=told(ignored))
    return Asked(body.generation(), shape)


def _is_chat(data: bytes) -> bool:
    try:
        return msgspec.json.decode(data, type=_Kind).messages is not None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False  # what is wrong with it is then said of a completion
