"""What the clients have in common: what to ask, of whom, when to ask again. Nothing here touches the network."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import httpx
import msgspec

from outrider_client.errors import (
    RETRYABLE,
    ConnectionFailedError,
    GatewayError,
    NotFoundError,
    error_of_answer,
    error_of_event,
    unreadable,
)
from outrider_client.sse import Parser
from outrider_client.types import Chunk, Failure

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Messages = Sequence[Mapping[str, Any]]
CONTINUE = {"x-outrider-on-disconnect": "continue"}
"""Has a gateway go on with a stream whose connection broke."""

PATIENCE_S = 60.0
"""How long a ``Retry-After`` may be to be kept to, unless a client is told otherwise."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_DONE = b"[DONE]"
_STREAM = "text/event-stream"


class Ask(msgspec.Struct, frozen=True):
    """One HTTP request, for whichever gateway."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = {}


def generation(prompt: str | Sequence[int] | None, messages: Messages | None, parameters: Mapping[str, Any]) -> Ask:
    """The request for a completion of ``prompt``, or for an answer to ``messages``."""
    if (prompt is None) == (messages is None):
        raise TypeError("give either a prompt or messages")
    given = {name: value for name, value in parameters.items() if value is not None}
    if messages is None:
        return Ask("POST", "/v1/completions", msgspec.json.encode({"prompt": prompt, **given}))
    return Ask("POST", "/v1/chat/completions", msgspec.json.encode({"messages": messages, **given}))


def refused(response: httpx.Response) -> GatewayError:
    """The error that a response, read to its end, tells."""
    headers = response.headers
    return error_of_answer(
        response.status_code, response.content, headers.get("x-request-id"), headers.get("retry-after")
    )


def decoded(data: bytes, kind: type[T]) -> T:
    """The JSON of an answer; `UnreadableAnswerError` where it is none, or something else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(data) from error


def is_stream(response: httpx.Response) -> bool:
    """Whether an answer is a stream of events."""
    return bool(response.headers.get("content-type", "").startswith(_STREAM))


class Gateways:
    """The base URLs, the one in use first."""

    def __init__(self, base_urls: str | Sequence[str]) -> None:
        urls = [base_urls] if isinstance(base_urls, str) else list(base_urls)
        if not urls:
            raise ValueError("at least one base URL is needed")
        self._urls = [url.rstrip("/").removesuffix("/v1") for url in urls]
        self._place = 0

    def url(self, ask: Ask) -> str:
        """Where ``ask`` goes now."""
        return self._urls[self._place] + ask.path

    @property
    def address(self) -> str:
        """The one in use."""
        return self._urls[self._place]

    def next(self) -> None:
        """Turns to the next gateway."""
        self._place = (self._place + 1) % len(self._urls)

    def __len__(self) -> int:
        return len(self._urls)


class Attempts:
    """Decides after each failure whether and when to try again, ``count`` times.

    A failure turns to the next gateway; where it was the connection's, at once while there is one that was not tried.
    A gateway that asks for more than ``patience_s`` seconds is not waited for.
    """

    def __init__(self, gateways: Gateways, count: int, patience_s: float = PATIENCE_S) -> None:
        self._gateways, self._count, self._patience_s = gateways, count, patience_s
        self.succeeded()

    def succeeded(self, seconds: float = 0.0) -> None:
        """Forgets all failures; for so many seconds from now there will be further tries, whatever their count."""
        self._failures, self._until = 0, time.monotonic() + seconds

    def pause(self, error: Exception) -> float:
        """Seconds to wait before the next try; raises when there is to be none."""
        self._failures += 1
        final = self._failures > self._count and time.monotonic() >= self._until
        if isinstance(error, GatewayError):
            if final or not isinstance(error, RETRYABLE) or (error.retry_after or 0.0) > self._patience_s:
                raise error
            self._gateways.next()
            return error.retry_after if error.retry_after is not None else self._backoff()
        if final:
            raise ConnectionFailedError(f"no gateway answered: {error or type(error).__name__}") from error
        self._gateways.next()
        return 0.0 if self._failures < len(self._gateways) else self._backoff()

    def _backoff(self) -> float:
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        return random.uniform(longest / 2, longest)


class Source(Protocol[T_co]):
    """One stream across all its connections, whatever it is of."""

    id: str
    done: bool

    @property
    def ask(self) -> Ask:
        """The request that goes on with the stream, or begins it."""

    @property
    def end(self) -> Ask | None:
        """The request that ends it, if it is to be ended."""

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway has answered with a stream, or its end."""

    def ended(self) -> None:
        """The gateway has said all that it had to say."""

    def refused(self, error: GatewayError) -> bool:
        """Whether to begin again."""

    def take(self, data: bytes) -> Iterator[T_co | GatewayError]:
        """What ``data`` brings. An error is the last; where it may pass, the stream can be asked for again."""


class Reading:
    """One stream across all its connections: what to ask next, and what came."""

    def __init__(self, ask: Ask | None, request_id: str = "", last_event_id: str = "") -> None:
        self._ask, self.id, self.last_event_id = ask, request_id, last_event_id
        self._heard = ask is None
        self._parser = Parser()
        self.done = False

    @property
    def ask(self) -> Ask:
        """The request that goes on with the stream, or begins it."""
        if not self.id:
            assert self._ask is not None
            return self._ask
        return Ask("GET", f"/v1/streams/{self.id}", headers=self._last)

    @property
    def end(self) -> Ask:
        """The request that ends it."""
        return Ask("DELETE", f"/v1/streams/{self.id}")

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway has answered with a stream, or its end; what was left half said is then forgotten."""
        if response.status_code != 204 and not is_stream(response):
            return False
        self.id = self.id or response.headers.get("x-request-id", "")
        self.done = response.status_code == 204
        self._parser = Parser()
        return True

    def ended(self) -> None:
        """The gateway has said all that it had to say; the last of it should have been ``[DONE]``."""

    def refused(self, error: GatewayError) -> bool:
        """Whether to begin again: the gateway died before it could note the stream, and nothing of it was heard."""
        if not isinstance(error, NotFoundError) or self._heard or not self.id:
            return False
        self.id = ""
        return True

    def take(self, data: bytes) -> Iterator[Chunk | GatewayError]:
        """What ``data`` brings, of which only what was taken counts as had. An error is the last; where it may pass,
        the stream can be asked for again.
        """
        for event in self._parser.feed(data):
            self._heard = True
            self.last_event_id = event.id or self.last_event_id
            if event.data == _DONE:
                self.done = True
            elif (error := decoded(event.data, Failure).error) is not None:
                failure = error_of_event(error, self.id)
                self.done = not isinstance(failure, RETRYABLE)
                yield failure
                return
            else:
                yield decoded(event.data, Chunk)

    @property
    def _last(self) -> dict[str, str]:
        return {"last-event-id": self.last_event_id} if self.last_event_id else {}
