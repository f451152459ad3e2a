"""Streams for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import httpx

from outrider_client.calls import Attempts, Reading, Source, refused
from outrider_client.errors import GatewayError, OutriderClientError, unreadable
from outrider_client.types import Chunk

if TYPE_CHECKING:
    from outrider_client.aio import AsyncClient

T = TypeVar("T")


class AsyncStreamOf(Generic[T]):
    """What a stream tells, whichever connections and gateways bring it; to be iterated once.

    Leaving the block, or `close`, ends a generation that is not done.
    """

    def __init__(self, client: AsyncClient, reading: Source[T]) -> None:
        self._client, self._reading = client, reading
        self._attempts = Attempts(client._gateways, client._retries, client._patience_s)
        self._chunks = self._read()

    @property
    def id(self) -> str:
        """The stream's id; empty before there is anything to read."""
        return self._reading.id

    def __aiter__(self) -> AsyncIterator[T]:
        return self._chunks

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops reading, and has the gateway stop generating, if it can be reached."""
        await self._chunks.aclose()
        if self._reading.id and not self._reading.done:
            self._reading.done = True
            await self._end()

    async def _end(self) -> None:
        if (end := self._reading.end) is not None:
            with suppress(httpx.TransportError, OutriderClientError):
                await self._client._http.send(self._client._request(end))

    async def _read(self) -> AsyncGenerator[T, None]:
        while not self._reading.done:
            try:
                async with aclosing(self._connection()) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except httpx.TransportError as error:
                await asyncio.sleep(self._attempts.pause(error))
            except GatewayError as error:
                if not self._reading.refused(error):
                    await asyncio.sleep(self._attempts.pause(error))

    async def _connection(self) -> AsyncGenerator[T, None]:
        request = self._client._request(self._reading.ask)
        async with aclosing(await self._client._http.send(request, stream=True)) as response:
            if not response.is_success:
                await response.aread()
                raise refused(response)
            if not self._reading.connected(response):
                raise unreadable(await response.aread())
            async for data in response.aiter_bytes():
                for found in self._reading.take(data):
                    if isinstance(found, GatewayError):
                        raise found
                    self._attempts.succeeded(self._client._resume_s)
                    yield found
            self._reading.ended()
            if not self._reading.done:
                raise httpx.RemoteProtocolError("the stream broke off")


class AsyncStream(AsyncStreamOf[Chunk]):
    """Chunks of one answer; ``id`` and ``last_event_id`` are what another process needs to `AsyncClient.resume`."""

    _reading: Reading

    @property
    def last_event_id(self) -> str:
        """Where the reader stands."""
        return self._reading.last_event_id
