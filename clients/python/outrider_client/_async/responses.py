"""Responses over HTTP."""

from __future__ import annotations

from typing import Any

from outrider_client._async.streams import AsyncEventStream
from outrider_client._async.transport import AsyncTransport
from outrider_client.calls import Input, response_ask, response_creation
from outrider_client.reading import ResponseReading
from outrider_client.types import Response, ResponseEvent


class AsyncResponses:
    """``responses`` of a client; its errors are those of `outrider_client.errors`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, input: Input, **parameters: Any) -> Response:  # noqa: A002 - as OpenAI's clients call it
        """A response, or with ``background`` its beginning; ``parameters`` are those of ``POST /v1/responses``."""
        return await self._transport.call(response_creation(input, parameters), Response)

    def stream(self, input: Input, **parameters: Any) -> AsyncResponseStream:  # noqa: A002
        """A response event by event, as it is generated."""
        return AsyncResponseStream(self._transport, ResponseReading.of(input, parameters))

    async def retrieve(self, response_id: str) -> Response:
        """A stored response as it stands; asking has one in the background go on whose gateway has died."""
        return await self._transport.call(response_ask(response_id), Response)

    def resume(self, response_id: str, starting_after: int = -1) -> AsyncResponseStream:
        """The events of a stored response behind the one of that number, or all; a response that was left goes on.

        Leaving this stream does not end the response.
        """
        return AsyncResponseStream(
            self._transport, ResponseReading(None, background=True, id=response_id, after=starting_after)
        )

    async def cancel(self, response_id: str) -> Response:
        """Ends a response in the background, and returns what there is of it."""
        return await self._transport.call(response_ask(response_id, "POST", "/cancel"), Response)

    async def delete(self, response_id: str) -> None:
        """Ends a response and forgets it."""
        await self._transport.send(response_ask(response_id, "DELETE"))


class AsyncResponseStream(AsyncEventStream[ResponseEvent]):
    """Events of one response; ``id`` and ``sequence_number`` are what another process needs to resume it.

    Leaving the block, or `close`, ends a response that is not done, unless it is in the background.
    """

    _reading: ResponseReading

    @property
    def sequence_number(self) -> int:
        """Where the reader stands."""
        return self._reading.sequence_number
