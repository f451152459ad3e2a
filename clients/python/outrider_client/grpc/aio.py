"""The client over gRPC, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc.aio

from outrider_client.calls import Attempts, Messages
from outrider_client.errors import OutriderClientError
from outrider_client.grpc.asking import completion, generation, lingering
from outrider_client.grpc.base import OPTIONS, Base
from outrider_client.grpc.course import Course
from outrider_client.grpc.methods import METHODS
from outrider_client.grpc.telling import failure, id_of, whole
from outrider_client.types import Answer, Chunk


class AsyncClient(Base):
    """As `Client`, for asyncio; tasks of one event loop may share one."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of the connections."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def complete(self, prompt: str | Sequence[int], **parameters: Any) -> Answer:
        """A completion."""
        return whole(await self._send("Complete", completion(generation(prompt, None, parameters))), chat=False)

    async def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat."""
        return whole(await self._send("Complete", completion(generation(None, messages, parameters))), chat=True)

    def stream(
        self, prompt: str | Sequence[int] | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> AsyncStream:
        """A completion of ``prompt``, or an answer to ``messages``, chunk by chunk as it is generated."""
        return AsyncStream(self, Course(lingering(generation(prompt, messages, parameters))))

    def resume(self, request_id: str, from_index: Sequence[int] = ()) -> AsyncStream:
        """As `Client.resume`."""
        return AsyncStream(self, Course(None, request_id, from_index))

    async def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        await self._send("Cancel", METHODS["Cancel"].request(request_id=request_id))

    async def models(self) -> list[str]:
        """Names of what is served."""
        return list((await self._send("ListModels", METHODS["ListModels"].request())).models)

    async def tokenize(self, text: str, model: str = "") -> list[int]:
        """Token ids of a text."""
        return list((await self._send("Tokenize", METHODS["Tokenize"].request(text=text, model=model))).tokens)

    async def detokenize(self, tokens: Sequence[int], model: str = "") -> str:
        """The text of token ids."""
        return str((await self._send("Detokenize", METHODS["Detokenize"].request(tokens=tokens, model=model))).text)

    def _open(self, address: str) -> Any:
        if self._credentials is not None:
            return grpc.aio.secure_channel(address, self._credentials, options=OPTIONS)
        return grpc.aio.insecure_channel(address, options=OPTIONS)

    async def _send(self, name: str, request: Any) -> Any:
        attempts = Attempts(self._gateways, self._retries, self._patience_s)
        while True:
            try:
                return await self._call(name, request, self._timeout)
            except grpc.aio.AioRpcError as error:
                await asyncio.sleep(attempts.pause(failure(error) or error))


class AsyncStream:
    """As `Stream`, for asyncio."""

    def __init__(self, client: AsyncClient, course: Course) -> None:
        self._client, self._course = client, course
        self._attempts = Attempts(client._gateways, client._retries, client._patience_s)
        self._chunks = self._read()

    @property
    def id(self) -> str:
        """The request's id; empty before the first chunk."""
        return self._course.id

    @property
    def next(self) -> list[int]:
        """Index of the next token of each choice."""
        return list(self._course.next)

    def __aiter__(self) -> AsyncIterator[Chunk]:
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
        if self._course.id and not self._course.done:
            self._course.done = True
            with suppress(OutriderClientError):
                await self._client.cancel(self._course.id)

    async def _read(self) -> AsyncGenerator[Chunk, None]:
        while not self._course.done:
            method, request = self._course.ask
            call = self._client._call(method, request)
            try:
                self._course.id = self._course.id or id_of(await call.initial_metadata())
                async for told in call:
                    self._attempts.succeeded(self._client._resume_s)
                    yield self._course.take(told)
                self._course.done = True
            except grpc.aio.AioRpcError as error:
                said = failure(error)
                if not self._course.again(method, said):
                    await asyncio.sleep(self._attempts.pause(said or error))
            finally:
                call.cancel()
