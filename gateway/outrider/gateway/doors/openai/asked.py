"""OpenAI's bodies where no path says what they are of: with messages they are of a chat, else of a completion."""

from __future__ import annotations

from typing import Any, NamedTuple

from outrider.gateway.doors.openai.bodies import read_chat, read_completion
from outrider.gateway.doors.openai.stored_form import Shape
from outrider.gateway.doors.schema.ignored import told
from outrider.gateway.requests.request import Generation


class Asked(NamedTuple):
    """What is to be generated, and the shape in which whoever resumes it over HTTP is told of it."""

    generation: Generation
    shape: Shape


def read_asked(given: dict[str, Any], ignored: list[str] | None = None) -> Asked:
    """The parameters ``given``, as `read`; `InvalidRequest` says what is wrong with them."""
    if given.get("messages") is not None:
        chat = read_chat(given, ignored)
        shape = Shape(
            "chat", chat.functions, chat.return_tokens, include_usage=True, bare=chat.bare, ignored=told(ignored)
        )
        return Asked(chat.generation(), shape)
    body = read_completion(given, ignored)
    shape = Shape("completion", (), body.return_tokens, include_usage=True, ignored=told(ignored))
    return Asked(body.generation(), shape)
