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


def read_asked(given: dict[str, Any], ignored: list[str] | None = None) -> Asked:
    """The parameters ``given``, as `read`; `InvalidRequest` says what is wrong with them."""
    kind = read_completion if given.get("messages") is None else read_chat
    body = kind(given, ignored)
    return Asked(body.generation(), msgspec.structs.replace(body.shape(told(ignored)), include_usage=True))
