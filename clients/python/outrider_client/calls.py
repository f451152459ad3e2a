"""Requests, gateways and retries, common to all clients. Nothing here touches the network."""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from outrider_client.errors import RETRYABLE, ConnectionFailedError, GatewayError, error_of_answer, unreadable

T = TypeVar("T")
Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]
Input = str | Sequence[Mapping[str, Any]]
CONTINUE = {"x-outrider-on-disconnect": "continue"}
"""Header that makes a gateway continue a stream after its connection breaks."""

PATIENCE_S = 60.0
"""Longest ``Retry-After`` in seconds that a client waits for, by default."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_STREAM = "text/event-stream"
_RESPONSES = "/v1/responses"
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making_decoders = threading.Lock()


def trusted(ca: str | None) -> ssl.SSLContext | bool:
    """What httpx takes as ``verify``: the authorities in the PEM file ``ca``, or the usual ones."""
    return ssl.create_default_context(cafile=ca) if ca else True


class GatewayRequest(msgspec.Struct, frozen=True):
    """One HTTP request, for any gateway."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = {}


def without_none(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that are not None."""
    return {name: value for name, value in parameters.items() if value is not None}


def body(prompt: Prompt | None, messages: Messages | None, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request: ``parameters``, and ``prompt`` or ``messages``; `TypeError` for both or neither."""
    if (prompt is None) == (messages is None):
        raise TypeError("give either a prompt or messages")
    return without_none({"prompt": prompt, "messages": messages, **parameters})


def generation(prompt: Prompt | None, messages: Messages | None, parameters: Mapping[str, Any]) -> GatewayRequest:
    """The request for a completion of ``prompt`` or an answer to ``messages``."""
    path = "/v1/completions" if messages is None else "/v1/chat/completions"
    return GatewayRequest("POST", path, msgspec.json.encode(body(prompt, messages, parameters)))


def stream_end(request_id: str) -> GatewayRequest:
    """The request that ends a stream."""
    return GatewayRequest("DELETE", f"/v1/streams/{request_id}")


def response_creation(content: Input, parameters: Mapping[str, Any]) -> GatewayRequest:
    """The request for a response to ``content``."""
    return GatewayRequest("POST", _RESPONSES, msgspec.json.encode(without_none({"input": content, **parameters})))


def response_request(response_id: str, method: str = "GET", more: str = "") -> GatewayRequest:
    """A request about a stored response; ``more`` follows its id in the path."""
    return GatewayRequest(method, f"{_RESPONSES}/{response_id}{more}")


def error_of_response(response: httpx.Response) -> GatewayError:
    """The error of a response whose body is read."""
    headers = response.headers
    return error_of_answer(
        response.status_code, response.content, headers.get("x-request-id"), headers.get("retry-after")
    )


def decoded(data: bytes | str, kind: type[T]) -> T:
    """The JSON of an answer; `UnreadableAnswerError` if ``data`` is no JSON of this kind."""
    try:
        return _decoder(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(data) from error


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of ``kind``: msgspec crashes where two threads use a type for the first time at once."""
    with _making_decoders:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def is_stream(response: httpx.Response) -> bool:
    """Whether an answer is a stream of events."""
    return bool(response.headers.get("content-type", "").startswith(_STREAM))


class Gateways:
    """The base URLs, and which of them is in use."""

    def __init__(self, base_urls: str | Sequence[str]) -> None:
        urls = [base_urls] if isinstance(base_urls, str) else list(base_urls)
        if not urls:
            raise ValueError("at least one base URL is needed")
        self._urls = [url.rstrip("/").removesuffix("/v1") for url in urls]
        self._place = 0

    def url(self, request: GatewayRequest) -> str:
        """URL of ``request`` at the gateway in use."""
        return self._urls[self._place] + request.path

    @property
    def address(self) -> str:
        """The base URL in use."""
        return self._urls[self._place]

    def next(self) -> None:
        """Moves to the next gateway."""
        self._place = (self._place + 1) % len(self._urls)

    def __len__(self) -> int:
        return len(self._urls)


class Attempts:
    """Decides after each failure whether and when to retry, up to ``count`` times.

    After a failure the next gateway is in use. A failed connection is retried at once while a gateway is untried. A
    ``Retry-After`` above ``patience_s`` seconds is not waited for.
    """

    def __init__(self, gateways: Gateways, count: int, patience_s: float = PATIENCE_S) -> None:
        self._gateways, self._count, self._patience_s = gateways, count, patience_s
        self.succeeded()

    def succeeded(self, seconds: float = 0.0) -> None:
        """Forgets all failures, and allows any number of retries in the next ``seconds``."""
        self._failures, self._until = 0, time.monotonic() + seconds

    def pause(self, error: Exception) -> float:
        """Seconds to wait before the next try; raises ``error`` if there is none."""
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
