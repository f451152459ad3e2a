"""A hostile input, what it is sent to, and the answer that it has to get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
from nats.aio.client import Client

ANSWER_S = 60.0


@dataclass
class Target:
    """A gateway with the model ``model``; ``key`` is the attacker's.

    Attributes:
        url, grpc: addresses of the APIs, as ``http://host:port`` and ``host:port``.
        nats: a connection to the broker.
        http: a client of ``url``, with the key and JSON as the type.
        body_bytes: most bytes of a body.
        connections: most connections of one address.
    """

    url: str
    grpc: str
    nats: Client
    http: httpx.AsyncClient
    model: str
    key: str = ""
    body_bytes: int = 8 << 20
    connections: int = 2000
    metadata: tuple[tuple[str, str], ...] = field(default=())


@dataclass(frozen=True)
class Outcome:
    """How an API answered: its status or code in words, and the message of an error."""

    answer: str
    message: str = ""


SERVED = "served"
CLOSED = "closed"


@dataclass(frozen=True)
class Case:
    """A hostile input.

    Attributes:
        what: the input in a few words.
        answers: the answers that are right, such as ``400``, ``INVALID_ARGUMENT``, ``served`` or ``closed``.
        says: a part of the error's message.
    """

    name: str
    api: str
    what: str
    answers: tuple[str, ...]
    says: str
    run: Callable[[Target], Awaitable[Outcome]]

    def fault(self, outcome: Outcome) -> str:
        """Why ``outcome`` is wrong; empty if it is right."""
        if outcome.answer in self.answers and self.says in outcome.message:
            return ""
        expected = " or ".join(self.answers) + (f" with {self.says!r}" if self.says else "")
        return f"{self.name}: {outcome.answer} {outcome.message!r}, not {expected}"


def by_http(answer: httpx.Response) -> Outcome:
    """The outcome of an answer over HTTP."""
    return Outcome(SERVED if answer.is_success else str(answer.status_code), error_message(answer.content))


def error_message(content: bytes) -> str:
    """The message of an error object; empty without one."""
    try:
        error: Any = msgspec.json.decode(content)["error"]
        return str(error["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
