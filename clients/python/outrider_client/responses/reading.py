"""What to ask about responses, and what a stream of their events brings. Nothing here touches the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import msgspec

from outrider_client.calls import CONTINUE, Ask, decoded, is_stream
from outrider_client.errors import RETRYABLE, ErrorBody, GatewayError, NotFoundError, error_of_event
from outrider_client.responses.types import ResponseEvent
from outrider_client.sse import Parser

PATH = "/v1/responses"
Input = str | Sequence[Mapping[str, Any]]

_LAST = ("response.completed", "response.incomplete", "response.failed")


class _Failure(msgspec.Struct):
    type: str = ""
    message: str = ""
    code: str | None = None
    param: str | None = None


def creation(said: Input, parameters: Mapping[str, Any]) -> Ask:
    """The request for a response to ``said``."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return Ask("POST", PATH, msgspec.json.encode({"input": said, **given}))


def about(response_id: str, method: str = "GET", more: str = "") -> Ask:
    """A request about a stored response."""
    return Ask(method, f"{PATH}/{response_id}{more}")


class ResponseReading:
    """One response's events across all connections.

    A foreground response is ended with its stream; one in the ``background`` goes on without it.
    """

    def __init__(self, ask: Ask | None, *, background: bool, id: str = "", after: int = -1) -> None:  # noqa: A002
        self._ask, self._background = ask, background
        self.id, self.sequence_number = id, after
        self._heard = ask is None
        self._parser, self._came = Parser(), False
        self.done = False

    @classmethod
    def of(cls, said: Input, parameters: Mapping[str, Any]) -> ResponseReading:
        """Of a response that is to be made; where it is stored, it goes on while its stream is broken."""
        ask = creation(said, {**parameters, "stream": True})
        if parameters.get("store") is not False:
            ask = msgspec.structs.replace(ask, headers=CONTINUE)
        return cls(ask, background=bool(parameters.get("background")))

    @property
    def ask(self) -> Ask:
        """The request that goes on with the stream, or begins it."""
        if not self.id:
            assert self._ask is not None
            return self._ask
        place = f"&starting_after={self.sequence_number}" if self.sequence_number >= 0 else ""
        return about(self.id, more=f"?stream=true{place}")

    @property
    def end(self) -> Ask | None:
        """The request that ends the response, if it is to end with its stream."""
        return None if self._background else about(self.id, "DELETE")

    def connected(self, response: httpx.Response) -> bool:
        """Whether a gateway has answered with a stream; what was left half said is then forgotten."""
        if not is_stream(response):
            return False
        self.id = self.id or f"resp_{response.headers.get('x-request-id', '')}"
        self._parser, self._came = Parser(), False
        return True

    def ended(self) -> None:
        """The gateway has said all that it had to say: nothing, where the event before was the last."""
        self.done = self.done or not self._came

    def refused(self, error: GatewayError) -> bool:
        """Whether to begin again: the gateway died before it could note the response, and nothing of it was heard."""
        if not isinstance(error, NotFoundError) or self._heard or not self.id:
            return False
        self.id = ""
        return True

    def take(self, data: bytes) -> Iterator[ResponseEvent | GatewayError]:
        """What ``data`` brings, of which only what was taken counts as had. An error is the last; where it may pass,
        the stream can be asked for again.
        """
        for event in self._parser.feed(data):
            self._heard = self._came = True
            if (failure := decoded(event.data, _Failure)).type == "error":
                yield self._failed(failure)
                return
            yield self._note(decoded(event.data, ResponseEvent))

    def _note(self, event: ResponseEvent) -> ResponseEvent:
        self.sequence_number = event.sequence_number
        self.done = event.type in _LAST
        return event

    def _failed(self, failure: _Failure) -> GatewayError:
        told = ErrorBody(failure.message, failure.code, failure.param, failure.code)
        error = error_of_event(told, self.id.removeprefix("resp_"))
        self.done = not isinstance(error, RETRYABLE)
        return error
