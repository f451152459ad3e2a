"""The client over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import msgspec

from outrider_client._async.blocks import AsyncBlock
from outrider_client._async.responses import AsyncResponses
from outrider_client._async.streams import AsyncStream
from outrider_client._async.transport import AsyncTransport
from outrider_client.calls import CONTINUE, PATIENCE_S, GatewayRequest, Messages, Prompt, generation, stream_end
from outrider_client.reading import ChunkReading
from outrider_client.types import Answer, Model, ModelList


class AsyncClient(AsyncBlock):
    """A client of gateways. Threads may share a `Client`, tasks of one event loop an `AsyncClient`.

    Methods raise the errors of `outrider_client.errors`.

    Args:
        base_urls: URLs of one or several gateways of one mesh; if one fails, the client uses the next.
        api_key: sent as a bearer token.
        timeout: seconds that a gateway may stay silent, also in mid-stream.
        max_retries: retries after 429, 502, 503, 504 or a failed connection; the client waits for `Retry-After`.
        retry_after_s: longest `Retry-After` in seconds to wait for; with a longer one, the error is raised at once.
        resume_s: seconds without success after which the client gives up a broken stream.
        ca: PEM file of the authorities to trust for https, if not the usual ones.
        http_client: client for requests, with its proxies, certificates and hooks; closed with this client.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str] = "http://127.0.0.1:8080",
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        retry_after_s: float = PATIENCE_S,
        resume_s: float = 30.0,
        ca: str | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._transport = AsyncTransport(
            base_urls,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            retry_after_s=retry_after_s,
            resume_s=resume_s,
            ca=ca,
            http_client=http_client,
        )
        self.responses = AsyncResponses(self._transport)

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def complete(self, prompt: Prompt, **parameters: Any) -> Answer:
        """A completion; ``parameters`` are those of ``POST /v1/completions``."""
        return await self._transport.call(generation(prompt, None, parameters), Answer)

    async def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat; ``parameters`` are those of ``POST /v1/chat/completions``."""
        return await self._transport.call(generation(None, messages, parameters), Answer)

    def stream(
        self, prompt: Prompt | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> AsyncStream:
        """Streams a completion of ``prompt`` or an answer to ``messages``, chunk by chunk."""
        request = generation(prompt, messages, {**parameters, "stream": True})
        continued = msgspec.structs.replace(request, headers=CONTINUE)
        return AsyncStream(self._transport, ChunkReading(continued))

    def resume(self, request_id: str, last_event_id: str = "") -> AsyncStream:
        """Resumes a stream of another process after the event ``last_event_id``, or from its beginning."""
        return AsyncStream(self._transport, ChunkReading(None, request_id, last_event_id))

    async def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        await self._transport.send(stream_end(request_id))

    async def models(self) -> list[Model]:
        """The served models."""
        return (await self._transport.call(GatewayRequest("GET", "/v1/models"), ModelList)).data
