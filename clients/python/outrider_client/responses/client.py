"""Responses for code that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider_client.responses.reading import Input, ResponseReading, about, creation
from outrider_client.responses.types import Response, ResponseEvent
from outrider_client.streams import StreamOf

if TYPE_CHECKING:
    from outrider_client.client import Client


class Responses:
    """``responses`` of a client; its errors are those of `outrider_client.errors`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, input: Input, **parameters: Any) -> Response:  # noqa: A002 - as OpenAI's clients call it
        """A response, or with ``background`` its beginning; ``parameters`` are those of ``POST /v1/responses``."""
        return self._client._call(creation(input, parameters), Response)

    def stream(self, input: Input, **parameters: Any) -> ResponseStream:  # noqa: A002
        """A response event by event, as it is generated."""
        return ResponseStream(self._client, ResponseReading.of(input, parameters))

    def retrieve(self, response_id: str) -> Response:
        """A stored response as it stands; asking has one in the background go on whose gateway has died."""
        return self._client._call(about(response_id), Response)

    def resume(self, response_id: str, starting_after: int = -1) -> ResponseStream:
        """The events of a stored response behind the one of that number, or all; a response that was left goes on.

        Leaving this stream does not end the response.
        """
        return ResponseStream(
            self._client, ResponseReading(None, background=True, id=response_id, after=starting_after)
        )

    def cancel(self, response_id: str) -> Response:
        """Ends a response in the background, and returns what there is of it."""
        return self._client._call(about(response_id, "POST", "/cancel"), Response)

    def delete(self, response_id: str) -> None:
        """Ends a response and forgets it."""
        self._client._send(about(response_id, "DELETE"))


class ResponseStream(StreamOf[ResponseEvent]):
    """Events of one response; ``id`` and ``sequence_number`` are what another process needs to `Responses.resume`.

    Leaving the block, or `close`, ends a response that is not done, unless it is in the background.
    """

    _reading: ResponseReading

    @property
    def sequence_number(self) -> int:
        """Where the reader stands."""
        return self._reading.sequence_number
