"""Streams over HTTP, and the base of streams over gRPC."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Generic, Protocol, TypeVar

import httpx
from httpx_sse import EventSource

from outrider_client._async.blocks import AsyncBlock
from outrider_client._async.transport import AsyncTransport
from outrider_client.calls import error_of_response
from outrider_client.errors import GatewayError, OutriderClientError, unreadable
from outrider_client.reading import ChunkReading, Reading
from outrider_client.types import Chunk

T = TypeVar("T")


class State(Protocol):
    """State of a stream: its id, empty before the first answer, and whether it has ended."""

    id: str
    done: bool


class AsyncStreamOf(AsyncBlock, Generic[T]):
    """Items of a stream across connections and gateways; iterate once.

    Leaving the block, or `close`, ends an unfinished generation.
    """

    def __init__(self, reading: State) -> None:
        self._reading, self._items = reading, self._read()

    @property
    def id(self) -> str:
        """The stream's id; empty before the first answer."""
        return self._reading.id

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items

    async def close(self) -> None:
        """Stops reading, and ends the generation if a gateway can be reached."""
        await self._items.aclose()
        if self._reading.id and not self._reading.done:
            self._reading.done = True
            await self._end()

    @abstractmethod
    def _read(self) -> AsyncGenerator[T, None]:
        """Yields items across all connections."""

    @abstractmethod
    async def _end(self) -> None:
        """Ends the generation."""


class AsyncEventStream(AsyncStreamOf[T]):
    """A stream of server-sent events; resumes after a broken connection."""

    _reading: Reading[T]

    def __init__(self, transport: AsyncTransport, reading: Reading[T]) -> None:
        self._transport, self._attempts = transport, transport.attempts()
        super().__init__(reading)

    async def _end(self) -> None:
        if (end := self._reading.end) is not None:
            with suppress(httpx.TransportError, OutriderClientError):
                await self._transport.send_once(end)

    async def _read(self) -> AsyncGenerator[T, None]:
        while not self._reading.done:
            try:
                async with aclosing(self._connection()) as items:
                    async for item in items:
                        yield item
            except httpx.TransportError as error:
                await asyncio.sleep(self._attempts.pause(error))
            except GatewayError as error:
                if not self._reading.begins_again(error):
                    await asyncio.sleep(self._attempts.pause(error))

    async def _connection(self) -> AsyncGenerator[T, None]:
        async with aclosing(await self._transport.send_once(self._reading.request, stream=True)) as response:
            if not response.is_success:
                await response.aread()
                raise error_of_response(response)
            if not self._reading.connected(response):
                raise unreadable(await response.aread())
            if self._reading.done:
                return
            async for event in EventSource(response).aiter_sse():
                if (item := self._reading.take(event)) is not None:
                    self._attempts.succeeded(self._transport.resume_s)
                    yield item
            self._reading.ended()
            if not self._reading.done:
                raise httpx.RemoteProtocolError("the stream broke off")


class AsyncStream(AsyncEventStream[Chunk]):
    """Chunks of one answer; another process can resume the stream by ``id`` and ``last_event_id``."""

    _reading: ChunkReading

    @property
    def last_event_id(self) -> str:
        """Id of the last event read."""
        return self._reading.last_event_id
