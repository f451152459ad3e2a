"""What a stream of server-sent events brings across all its connections. Nothing here touches the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import httpx
import msgspec
from httpx_sse import ServerSentEvent

from outrider_client.calls import CONTINUE, Ask, Input, decoded, is_stream, response_ask, response_creation, stream_end
from outrider_client.errors import RETRYABLE, ErrorBody, GatewayError, NotFoundError, error_of_event
from outrider_client.types import Chunk, Failure, ResponseEvent

T = TypeVar("T")
_DONE = "[DONE]"
_LAST = ("response.completed", "response.incomplete", "response.failed")


class Reading(ABC, Generic[T]):
    """One stream across all its connections: what to ask next, and what came.

    Without a request that begins it, the stream is one that another process began.
    """

    def __init__(self, beginning: Ask | None, id: str) -> None:  # noqa: A002 - as the streams call it
        self._beginning, self.id = beginning, id
        self._heard = beginning is None
        self.done = False

    @property
    def ask(self) -> Ask:
        """The request that goes on with the stream, or begins it."""
        if self.id:
            return self._rest()
        assert self._beginning is not None
        return self._beginning

    @property
    @abstractmethod
    def end(self) -> Ask | None:
        """The request that ends the stream, if leaving the stream is to end it."""

    @abstractmethod
    def _rest(self) -> Ask:
        """The request for what follows the last item that was read."""

    @abstractmethod
    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway has answered with a stream, or its end."""

    @abstractmethod
    def ended(self) -> None:
        """The gateway has ended its answer in good order."""

    def refused(self, error: GatewayError) -> bool:
        """Whether to begin again: the gateway died before it could note the stream, and nothing of it was heard."""
        if not isinstance(error, NotFoundError) or self._heard or not self.id:
            return False
        self.id = ""
        return True

    def take(self, event: ServerSentEvent) -> T | None:
        """The item that ``event`` brings, if it brings one.

        Raises the `GatewayError` that ``event`` tells: the stream can be asked for again where the error may pass.
        """
        if not event.data:
            return None
        self._heard = True
        return self._taken(event)

    @abstractmethod
    def _taken(self, event: ServerSentEvent) -> T | None:
        """As `take`."""

    def _failure(self, told: ErrorBody, request_id: str) -> GatewayError:
        """The error that ended a connection, and the stream unless the error may pass."""
        error = error_of_event(told, request_id)
        self.done = not isinstance(error, RETRYABLE)
        return error


class ChunkReading(Reading[Chunk]):
    """A completion's or a chat's chunks."""

    def __init__(self, beginning: Ask | None, request_id: str = "", last_event_id: str = "") -> None:
        super().__init__(beginning, request_id)
        self.last_event_id = last_event_id

    @property
    def end(self) -> Ask:
        """The request that ends the stream."""
        return stream_end(self.id)

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway has answered with a stream, or with 204 where nothing is left of it."""
        if response.status_code != 204 and not is_stream(response):
            return False
        self.id = self.id or response.headers.get("x-request-id", "")
        self.done = response.status_code == 204
        return True

    def ended(self) -> None:
        """The gateway has ended its answer; the last event should have been ``[DONE]``."""

    def _rest(self) -> Ask:
        headers = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        return Ask("GET", f"/v1/streams/{self.id}", headers=headers)

    def _taken(self, event: ServerSentEvent) -> Chunk | None:
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
    """One response's events.

    A foreground response is ended with its stream; one in the ``background`` goes on without it.
    """

    def __init__(self, beginning: Ask | None, *, background: bool, id: str = "", after: int = -1) -> None:  # noqa: A002
        super().__init__(beginning, id)
        self._background, self.sequence_number = background, after
        self._came = False

    @classmethod
    def of(cls, said: Input, parameters: Mapping[str, Any]) -> ResponseReading:
        """Of a response that is to be made; where it is stored, it goes on while its stream is broken."""
        ask = response_creation(said, {**parameters, "stream": True})
        if parameters.get("store") is not False:
            ask = msgspec.structs.replace(ask, headers=CONTINUE)
        return cls(ask, background=bool(parameters.get("background")))

    @property
    def end(self) -> Ask | None:
        """The request that ends the response, if it is to end with its stream."""
        return None if self._background else response_ask(self.id, "DELETE")

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway has answered with a stream."""
        if not is_stream(response):
            return False
        self.id = self.id or f"resp_{response.headers.get('x-request-id', '')}"
        self._came = False
        return True

    def ended(self) -> None:
        """The gateway has ended its answer: without an event, where the one before was the last."""
        self.done = self.done or not self._came

    def _rest(self) -> Ask:
        place = f"&starting_after={self.sequence_number}" if self.sequence_number >= 0 else ""
        return response_ask(self.id, more=f"?stream=true{place}")

    def _taken(self, event: ServerSentEvent) -> ResponseEvent:
        self._came = True
        if (failure := decoded(event.data, _ResponseFailure)).type == "error":
            told = ErrorBody(failure.message, failure.code, failure.param, failure.code)
            raise self._failure(told, self.id.removeprefix("resp_"))
        item = decoded(event.data, ResponseEvent)
        self.sequence_number, self.done = item.sequence_number, item.type in _LAST
        return item
