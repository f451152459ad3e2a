"""Requests over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import httpx

from outrider_client.calls import Attempts, GatewayRequest, Gateways, decoded, error_of_response, trusted
from outrider_client.errors import GatewayError

T = TypeVar("T")


class AsyncTransport:
    """Sends requests to one of several gateways; if it fails, to the next.

    The arguments are those of `outrider_client.Client`.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        *,
        api_key: str | None,
        timeout: float,
        max_retries: int,
        retry_after_s: float,
        resume_s: float,
        ca: str | None,
        http_client: httpx.AsyncClient | None,
    ) -> None:
        self._gateways, self._timeout = Gateways(base_urls), timeout
        self._retries, self._patience_s, self.resume_s = max_retries, retry_after_s, resume_s
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._http = http_client or httpx.AsyncClient(verify=trusted(ca))

    def attempts(self) -> Attempts:
        """Retries of one request or stream."""
        return Attempts(self._gateways, self._retries, self._patience_s)

    async def call(self, request: GatewayRequest, kind: type[T]) -> T:
        """The answer to ``request``, with retries; raises the errors of `outrider_client.errors`."""
        return decoded((await self.send(request)).content, kind)

    async def send(self, request: GatewayRequest) -> httpx.Response:
        """The response to ``request``, with retries, not decoded."""
        attempts = self.attempts()
        while True:
            try:
                response = await self.send_once(request)
                if response.is_success:
                    return response
                raise error_of_response(response)
            except (httpx.TransportError, GatewayError) as error:
                await asyncio.sleep(attempts.pause(error))

    async def send_once(self, request: GatewayRequest, *, stream: bool = False) -> httpx.Response:
        """Any response of the gateway in use, with ``stream`` before its body; may raise `httpx.TransportError`."""
        url, headers = self._gateways.url(request), {**self._headers, **request.headers}
        http_request = self._http.build_request(
            request.method, url, content=request.body, headers=headers, timeout=self._timeout
        )
        return await self._http.send(http_request, stream=stream)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()
