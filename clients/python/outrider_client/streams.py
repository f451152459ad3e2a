"""Streams for code that waits."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import httpx

from outrider_client.calls import Attempts, Reading, Source, refused
from outrider_client.errors import GatewayError, OutriderClientError, unreadable
from outrider_client.types import Chunk

if TYPE_CHECKING:
    from outrider_client.client import Client

T = TypeVar("T")


class StreamOf(Generic[T]):
    """What a stream tells, whichever connections and gateways bring it; to be iterated once.

    Leaving the block, or `close`, ends a generation that is not done.
    """

    def __init__(self, client: Client, reading: Source[T]) -> None:
        self._client, self._reading = client, reading
        self._attempts = Attempts(client._gateways, client._retries, client._patience_s)
        self._chunks = self._read()

    @property
    def id(self) -> str:
        """The stream's id; empty before there is anything to read."""
        return self._reading.id

    def __iter__(self) -> Iterator[T]:
        return self._chunks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading, and has the gateway stop generating, if it can be reached."""
        self._chunks.close()
        if self._reading.id and not self._reading.done:
            self._reading.done = True
            self._end()

    def _end(self) -> None:
        if (end := self._reading.end) is not None:
            with suppress(httpx.TransportError, OutriderClientError):
                self._client._http.send(self._client._request(end))

    def _read(self) -> Generator[T, None, None]:
        while not self._reading.done:
            try:
                yield from self._connection()
            except httpx.TransportError as error:
                time.sleep(self._attempts.pause(error))
            except GatewayError as error:
                if not self._reading.refused(error):
                    time.sleep(self._attempts.pause(error))

    def _connection(self) -> Iterator[T]:
        request = self._client._request(self._reading.ask)
        with closing(self._client._http.send(request, stream=True)) as response:
            if not response.is_success:
                response.read()
                raise refused(response)
            if not self._reading.connected(response):
                raise unreadable(response.read())
            for data in response.iter_bytes():
                for found in self._reading.take(data):
                    if isinstance(found, GatewayError):
                        raise found
                    self._attempts.succeeded(self._client._resume_s)
                    yield found
            self._reading.ended()
            if not self._reading.done:
                raise httpx.RemoteProtocolError("the stream broke off")


class Stream(StreamOf[Chunk]):
    """Chunks of one answer; ``id`` and ``last_event_id`` are what another process needs to `Client.resume`."""

    _reading: Reading

    @property
    def last_event_id(self) -> str:
        """Where the reader stands."""
        return self._reading.last_event_id
