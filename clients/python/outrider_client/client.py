"""The client for code that waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

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
from outrider_client.responses.client import Responses
from outrider_client.streams import Stream
from outrider_client.types import Answer, Model, ModelList

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
        self.responses = Responses(self)

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
        asked = msgspec.structs.replace(ask, headers=CONTINUE)
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
