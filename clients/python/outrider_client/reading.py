"""Reads a stream of server-sent events across connections. Nothing here touches the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import httpx
import msgspec
from httpx_sse import ServerSentEvent

from outrider_client.calls import (
    CONTINUE,
    GatewayRequest,
    Input,
    decoded,
    is_stream,
    response_creation,
    response_request,
    stream_end,
)
from outrider_client.errors import RETRYABLE, ErrorBody, GatewayError, NotFoundError, error_of_event
from outrider_client.types import Chunk, Failure, ResponseEvent

T = TypeVar("T")
_DONE = "[DONE]"
_LAST = ("response.completed", "response.incomplete", "response.failed")


class Reading(ABC, Generic[T]):
    """One stream across all its connections: the next request, and the items of events.

    With ``beginning`` None, another process began the stream.
    """

    def __init__(self, beginning: GatewayRequest | None, id: str) -> None:  # noqa: A002 - the name in streams
        self._beginning, self.id = beginning, id
        self._has_begun = beginning is None
        self.done = False

    @property
    def request(self) -> GatewayRequest:
        """The request that continues the stream, or begins it."""
        if self.id:
            return self._rest()
        assert self._beginning is not None
        return self._beginning

    @property
    @abstractmethod
    def end(self) -> GatewayRequest | None:
        """The request that ends the stream; None if the stream survives its reader."""

    @abstractmethod
    def _rest(self) -> GatewayRequest:
        """The request for the items after the last one read."""

    @abstractmethod
    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway answered with a stream, or with its end."""

    @abstractmethod
    def ended(self) -> None:
        """Notes that the gateway's answer ended without an error."""

    def begins_again(self, error: GatewayError) -> bool:
        """Whether to begin again: no gateway knows the stream, and no event of it has arrived."""
        if not isinstance(error, NotFoundError) or self._has_begun or not self.id:
            return False
        self.id = ""
        return True

    def take(self, event: ServerSentEvent) -> T | None:
        """The item in ``event``; None without one.

        Raises the `GatewayError` in ``event``; the stream can be resumed after a retryable error.
        """
        if not event.data:
            return None
        self._has_begun = True
        return self._item(event)

    @abstractmethod
    def _item(self, event: ServerSentEvent) -> T | None:
        """The item in an event with data; see `take`."""

    def _failure(self, body: ErrorBody, request_id: str) -> GatewayError:
        """The error that ended a connection, and the stream too unless the error is retryable."""
        error = error_of_event(body, request_id)
        self.done = not isinstance(error, RETRYABLE)
        return error


class ChunkReading(Reading[Chunk]):
    """Reads chunks of a completion or a chat."""

    def __init__(self, beginning: GatewayRequest | None, request_id: str = "", last_event_id: str = "") -> None:
        super().__init__(beginning, request_id)
        self.last_event_id = last_event_id

    @property
    def end(self) -> GatewayRequest:
        """The request that ends the stream."""
        return stream_end(self.id)

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway answered with a stream, or with 204 for a stream without further events."""
        if response.status_code != 204 and not is_stream(response):
            return False
        self.id = self.id or _request_id(response)
        self.done = response.status_code == 204
        return True

    def ended(self) -> None:
        """Does nothing: the event ``[DONE]`` ends the stream."""

    def _rest(self) -> GatewayRequest:
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        return GatewayRequest("GET", f"/v1/streams/{self.id}", headers=headers)

    def _item(self, event: ServerSentEvent) -> Chunk | None:
        self.last_event_id = event.id or self.last_event_id
        if event.data == _DONE:
            self.done = True
            return None
        if (error := decoded(event.data, Failure).error) is not None:
            raise self._failure(error, self.id)
        return decoded(event.data, Chunk)


class _ResponseFailure(msgspec.Struct):
    type: str = ""
    message: str = ""
    code: str | None = None
    param: str | None = None


class ResponseReading(Reading[ResponseEvent]):
    """Reads events of a response.

    A foreground response ends with its stream; a ``background`` response continues without it.
    """

    def __init__(self, beginning: GatewayRequest | None, *, background: bool, id: str = "", after: int = -1) -> None:  # noqa: A002
        super().__init__(beginning, id)
        self._background, self.sequence_number = background, after
        self._has_events = False

    @classmethod
    def of(cls, content: Input, parameters: Mapping[str, Any]) -> ResponseReading:
        """Reads a new response; a stored response continues while its stream is broken."""
        request = response_creation(content, {**parameters, "stream": True})
        if parameters.get("store") is not False:
            request = msgspec.structs.replace(request, headers=CONTINUE)
        return cls(request, background=bool(parameters.get("background")))

    @property
    def end(self) -> GatewayRequest | None:
        """The request that ends the response; None for a background response."""
        return None if self._background else response_request(self.id, "DELETE")

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway answered with a stream."""
        if not is_stream(response):
            return False
        self.id = self.id or f"resp_{_request_id(response)}"
        self._has_events = False
        return True

    def ended(self) -> None:
        """Notes the end of an answer; an answer without events means that the stream is done."""
        self.done = self.done or not self._has_events

    def _rest(self) -> GatewayRequest:
        place = f"&starting_after={self.sequence_number}" if self.sequence_number >= 0 else ""
        return response_request(self.id, more=f"?stream=true{place}")

    def _item(self, event: ServerSentEvent) -> ResponseEvent:
        self._has_events = True
        if (failure := decoded(event.data, _ResponseFailure)).type == "error":
            body = ErrorBody(failure.message, failure.code, failure.param, failure.code)
            raise self._failure(body, self.id.removeprefix("resp_"))
        item = decoded(event.data, ResponseEvent)
        self.sequence_number, self.done = item.sequence_number, item.type in _LAST
        return item


def _request_id(response: httpx.Response) -> str:
    """The gateway's own id of a request, whichever id a proxy gave it."""
    own = response.headers.get("x-outrider-request-id")
    return str(own or response.headers.get("x-request-id", ""))
