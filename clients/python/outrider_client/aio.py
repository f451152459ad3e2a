"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from outrider_client.aio_streams import AsyncStream
from outrider_client.calls import (
    CONTINUE,
    PATIENCE_S,
    Ask,
    Attempts,
    Gateways,
    Messages,
    Reading,
    decoded,
    generation,
    refused,
)
from outrider_client.errors import GatewayError
from outrider_client.responses.aio import AsyncResponses
from outrider_client.types import Answer, Model, ModelList

T = TypeVar("T")


class AsyncClient:
    """Asks gateways; tasks of one event loop may share one.

    The errors of its methods are those of `outrider_client.errors`.

    Args:
        base_urls: of one gateway or several of one mesh; where one fails, the next is asked.
        api_key: sent as a bearer token.
        timeout: seconds that a gateway may stay silent, in the middle of a stream too.
        max_retries: further attempts after 429, 502, 503, 504 or a connection that failed; `Retry-After` is kept to.
        retry_after_s: the longest `Retry-After` that is waited for, in seconds; beyond it the error is raised at once.
        resume_s: seconds without any success after which a stream that broke is given up.
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
    ) -> None:
        self._retries, self._patience_s, self._resume_s = max_retries, retry_after_s, resume_s
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._gateways = Gateways(base_urls)
        self._http = httpx.AsyncClient(timeout=timeout, headers=headers)
        self.responses = AsyncResponses(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of the connections."""
        await self._http.aclose()

    async def complete(self, prompt: str | Sequence[int], **parameters: Any) -> Answer:
        """A completion; ``parameters`` are those of ``POST /v1/completions``."""
        return await self._call(generation(prompt, None, parameters), Answer)

    async def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat; ``parameters`` are those of ``POST /v1/chat/completions``."""
        return await self._call(generation(None, messages, parameters), Answer)

    def stream(
        self, prompt: str | Sequence[int] | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> AsyncStream:
        """A completion of ``prompt``, or an answer to ``messages``, chunk by chunk as it is generated."""
        ask = generation(prompt, messages, {**parameters, "stream": True})
        asked = msgspec.structs.replace(ask, headers=CONTINUE)
        return AsyncStream(self, Reading(asked))

    def resume(self, request_id: str, last_event_id: str = "") -> AsyncStream:
        """A stream that another process had begun, behind the event of that id, or from its beginning."""
        return AsyncStream(self, Reading(None, request_id, last_event_id))

    async def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        await self._send(Reading(None, request_id).end)

    async def models(self) -> list[Model]:
        """What is served."""
        return (await self._call(Ask("GET", "/v1/models"), ModelList)).data

    async def _call(self, ask: Ask, kind: type[T]) -> T:
        return decoded((await self._send(ask)).content, kind)

    async def _send(self, ask: Ask) -> httpx.Response:
        attempts = Attempts(self._gateways, self._retries, self._patience_s)
        while True:
            try:
                response = await self._http.send(self._request(ask))
                if response.is_success:
                    return response
                raise refused(response)
            except (httpx.TransportError, GatewayError) as error:
                await asyncio.sleep(attempts.pause(error))

    def _request(self, ask: Ask) -> httpx.Request:
        headers = {"content-type": "application/json", **ask.headers}
        return self._http.build_request(ask.method, self._gateways.url(ask), content=ask.body, headers=headers)
