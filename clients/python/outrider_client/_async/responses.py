"""Responses over HTTP."""

from __future__ import annotations

from typing import Any

from outrider_client._async.streams import AsyncEventStream
from outrider_client._async.transport import AsyncTransport
from outrider_client.calls import Input, response_creation, response_request
from outrider_client.reading import ResponseReading
from outrider_client.types import Response, ResponseEvent


class AsyncResponses:
    """The attribute ``responses`` of a client; methods raise the errors of `outrider_client.errors`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, input: Input, **parameters: Any) -> Response:  # noqa: A002 - the name in OpenAI's clients
        """A response; with ``background``, its beginning. ``parameters`` are those of ``POST /v1/responses``."""
        return await self._transport.call(response_creation(input, parameters), Response)

    def stream(self, input: Input, **parameters: Any) -> AsyncResponseStream:  # noqa: A002
        """Streams a response, event by event."""
        return AsyncResponseStream(self._transport, ResponseReading.of(input, parameters))

    async def retrieve(self, response_id: str) -> Response:
        """A stored response in its present state; resumes a background response whose gateway has died."""
        return await self._transport.call(response_request(response_id), Response)

    def resume(self, response_id: str, starting_after: int = -1) -> AsyncResponseStream:
        """Streams the events of a stored response after number ``starting_after``; an abandoned response continues.

        Leaving this stream does not end the response.
        """
        return AsyncResponseStream(
            self._transport, ResponseReading(None, background=True, id=response_id, after=starting_after)
        )

    async def cancel(self, response_id: str) -> Response:
        """Ends a background response; returns the part that exists."""
        return await self._transport.call(response_request(response_id, "POST", "/cancel"), Response)

    async def delete(self, response_id: str) -> None:
        """Ends and deletes a response."""
        await self._transport.send(response_request(response_id, "DELETE"))


class AsyncResponseStream(AsyncEventStream[ResponseEvent]):
    """Events of one response; another process can resume the stream by ``id`` and ``sequence_number``.

    Leaving the block, or `close`, ends an unfinished response, except a background response.
    """

    _reading: ResponseReading

    @property
    def sequence_number(self) -> int:
        """Number of the last event read."""
        return self._reading.sequence_number
