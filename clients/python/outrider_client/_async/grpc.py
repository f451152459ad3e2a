"""The client over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import grpc

from outrider_client._async.blocks import AsyncBlock
from outrider_client._async.streams import AsyncStreamOf
from outrider_client.calls import PATIENCE_S, Attempts, Gateways, Messages, Prompt
from outrider_client.errors import OutriderClientError
from outrider_client.grpc.answers import failure, id_of, whole
from outrider_client.grpc.channels import open_async_channel
from outrider_client.grpc.methods import METHODS
from outrider_client.grpc.reading import GrpcReading
from outrider_client.grpc.requests import completion, generation, with_linger
from outrider_client.types import Answer, Chunk


class AsyncCalls:
    """Calls one of several gateways; if it fails, the next.

    The arguments are those of `outrider_client.grpc.Client`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        api_key: str | None,
        timeout: float,
        max_retries: int,
        retry_after_s: float,
        resume_s: float,
        credentials: grpc.ChannelCredentials | None,
    ) -> None:
        self._gateways, self._timeout = Gateways(addresses), timeout
        self._retries, self._patience_s, self.resume_s = max_retries, retry_after_s, resume_s
        self._credentials = credentials
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._channels: dict[str, Any] = {}

    def attempts(self) -> Attempts:
        """Retries of one request or stream."""
        return Attempts(self._gateways, self._retries, self._patience_s)

    async def send(self, name: str, request: Any) -> Any:
        """The answer of the method ``name``, with retries.

        Raises the errors of `outrider_client.errors`.
        """
        attempts = self.attempts()
        while True:
            try:
                return await self.call(name, request, self._timeout)
            except grpc.RpcError as error:
                await asyncio.sleep(attempts.pause(failure(error) or error))

    def call(self, name: str, request: Any, timeout: float | None = None) -> Any:
        """Calls the method ``name`` at the gateway in use; the call may raise `grpc.RpcError`."""
        method, address = METHODS[name], self._gateways.address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_async_channel(address, self._credentials)
        make = channel.unary_stream if method.streams else channel.unary_unary
        call = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return call(request, timeout=timeout, metadata=self._metadata)

    async def close(self) -> None:
        """Closes the connections."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()


class AsyncClient(AsyncBlock):
    """A client of gateways over gRPC. Threads may share a `Client`, tasks of one event loop an `AsyncClient`.

    Methods and errors are those of the clients over HTTP.

    Args:
        addresses: ``host:port`` of one or several gateways of one mesh; if one fails, the client uses the next.
        api_key: sent as a bearer token.
        timeout: seconds that an answer may take, unless it is a stream.
        max_retries: retries after a failed connection or a retryable error.
        retry_after_s: longest wait in seconds that a gateway may ask for; with a longer one, the error is raised.
        resume_s: seconds without success after which the client gives up a broken stream.
        credentials: TLS credentials, for gateways with a certificate, or a proxy with one in front of them.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:8081",
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        retry_after_s: float = PATIENCE_S,
        resume_s: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._calls = AsyncCalls(
            addresses,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            retry_after_s=retry_after_s,
            resume_s=resume_s,
            credentials=credentials,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._calls.close()

    async def complete(self, prompt: Prompt, **parameters: Any) -> Answer:
        """A completion."""
        return whole(await self._calls.send("Complete", completion(generation(prompt, None, parameters))), chat=False)

    async def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat."""
        return whole(await self._calls.send("Complete", completion(generation(None, messages, parameters))), chat=True)

    def stream(
        self, prompt: Prompt | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> AsyncStream:
        """Streams a completion of ``prompt`` or an answer to ``messages``, chunk by chunk."""
        return AsyncStream(self._calls, GrpcReading(with_linger(generation(prompt, messages, parameters))))

    def resume(self, request_id: str, from_index: Sequence[int] = ()) -> AsyncStream:
        """Resumes a stream of another process from an index of each choice, or from its beginning."""
        return AsyncStream(self._calls, GrpcReading(None, request_id, from_index))

    async def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        await self._calls.send("Cancel", METHODS["Cancel"].request(request_id=request_id))

    async def models(self) -> list[str]:
        """Names of the served models."""
        return list((await self._calls.send("ListModels", METHODS["ListModels"].request())).models)

    async def tokenize(self, text: str, model: str = "") -> list[int]:
        """Token ids of a text."""
        request = METHODS["Tokenize"].request(text=text, model=model)
        return list((await self._calls.send("Tokenize", request)).tokens)

    async def detokenize(self, tokens: Sequence[int], model: str = "") -> str:
        """The text of token ids."""
        request = METHODS["Detokenize"].request(tokens=tokens, model=model)
        return str((await self._calls.send("Detokenize", request)).text)


class AsyncStream(AsyncStreamOf[Chunk]):
    """Chunks of one answer; another process can resume the stream by ``id`` and ``next``."""

    _reading: GrpcReading

    def __init__(self, calls: AsyncCalls, reading: GrpcReading) -> None:
        self._calls, self._attempts = calls, calls.attempts()
        super().__init__(reading)

    @property
    def next(self) -> list[int]:
        """Index of the next token of each choice."""
        return list(self._reading.next)

    async def _end(self) -> None:
        with suppress(OutriderClientError):
            await self._calls.send("Cancel", METHODS["Cancel"].request(request_id=self.id))

    async def _read(self) -> AsyncGenerator[Chunk, None]:
        reading = self._reading
        while not reading.done:
            method, request = reading.next_call
            call = self._calls.call(method, request)
            try:
                reading.id = reading.id or id_of(await call.initial_metadata())
                async for message in call:
                    self._attempts.succeeded(self._calls.resume_s)
                    yield reading.take(message)
                reading.done = True
            except grpc.RpcError as error:
                refusal = failure(error)
                if not reading.begins_again(method, refusal):
                    await asyncio.sleep(self._attempts.pause(refusal or error))
            finally:
                call.cancel()
