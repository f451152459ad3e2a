"""The client for code that waits."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from outrider_client.calls import (
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
from outrider_client.errors import GatewayError, OutriderClientError, unreadable
from outrider_client.types import Answer, Chunk, Model, ModelList

T = TypeVar("T")


class Client:
    """Asks gateways; threads may share one.

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
        self._http = httpx.Client(timeout=timeout, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connections."""
        self._http.close()

    def complete(self, prompt: str | Sequence[int], **parameters: Any) -> Answer:
        """A completion; ``parameters`` are those of ``POST /v1/completions``."""
        return self._call(generation(prompt, None, parameters), Answer)

    def chat(self, messages: Messages, **parameters: Any) -> Answer:
        """An answer to a chat; ``parameters`` are those of ``POST /v1/chat/completions``."""
        return self._call(generation(None, messages, parameters), Answer)

    def stream(
        self, prompt: str | Sequence[int] | None = None, *, messages: Messages | None = None, **parameters: Any
    ) -> Stream:
        """A completion of ``prompt``, or an answer to ``messages``, chunk by chunk as it is generated."""
        ask = generation(prompt, messages, {**parameters, "stream": True})
        asked = msgspec.structs.replace(ask, headers={"x-outrider-on-disconnect": "continue"})
        return Stream(self, Reading(asked))

    def resume(self, request_id: str, last_event_id: str = "") -> Stream:
        """A stream that another process had begun, behind the event of that id, or from its beginning."""
        return Stream(self, Reading(None, request_id, last_event_id))

    def cancel(self, request_id: str) -> None:
        """Ends a stream for all its readers."""
        self._send(Reading(None, request_id).end)

    def models(self) -> list[Model]:
        """What is served."""
        return self._call(Ask("GET", "/v1/models"), ModelList).data

    def _call(self, ask: Ask, kind: type[T]) -> T:
        return decoded(self._send(ask).content, kind)

    def _send(self, ask: Ask) -> httpx.Response:
        attempts = Attempts(self._gateways, self._retries, self._patience_s)
        while True:
            try:
                response = self._http.send(self._request(ask))
                if response.is_success:
                    return response
                raise refused(response)
            except (httpx.TransportError, GatewayError) as error:
                time.sleep(attempts.pause(error))

    def _request(self, ask: Ask) -> httpx.Request:
        headers = {"content-type": "application/json", **ask.headers}
        return self._http.build_request(ask.method, self._gateways.url(ask), content=ask.body, headers=headers)


class Stream:
    """Chunks of one answer, whichever connections and gateways bring them; to be iterated once.

    ``id`` and ``last_event_id`` are what another process needs to `Client.resume`. Leaving the block, or `close`,
    ends a generation that is not done.
    """

    def __init__(self, client: Client, reading: Reading) -> None:
        self._client, self._reading = client, reading
        self._attempts = Attempts(client._gateways, client._retries, client._patience_s)
        self._chunks = self._read()

    @property
    def id(self) -> str:
        """The request's id; empty before the first chunk."""
        return self._reading.id

    @property
    def last_event_id(self) -> str:
        """Where the reader stands."""
        return self._reading.last_event_id

    def __iter__(self) -> Iterator[Chunk]:
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
            with suppress(httpx.TransportError, OutriderClientError):
                self._client._http.send(self._client._request(self._reading.end))

    def _read(self) -> Generator[Chunk, None, None]:
        while not self._reading.done:
            try:
                yield from self._connection()
            except httpx.TransportError as error:
                time.sleep(self._attempts.pause(error))
            except GatewayError as error:
                if not self._reading.refused(error):
                    time.sleep(self._attempts.pause(error))

    def _connection(self) -> Iterator[Chunk]:
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
            if not self._reading.done:
                raise httpx.RemoteProtocolError("the stream broke off")
