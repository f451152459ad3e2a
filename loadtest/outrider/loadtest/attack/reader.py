"""Reads one streamed completion to its end; resumes a broken stream at the next gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
from httpx_sse import EventSource, ServerSentEvent

PATIENCE_S = 60.0
"""Seconds without a token after which a stream counts as hung."""
SILENCE_S = 10.0
"""Seconds without bytes after which the reader closes a connection."""
_RETRY_S = 0.2


class StreamRecord(msgspec.Struct):
    """The course of one stream. Times are of `time.monotonic`, which all processes of a machine share.

    Attributes:
        began: when the request was sent.
        ended: when the stream ended, or the reader gave up.
        arrivals: times of tokens, and their numbers.
        answer: tokens, text, finish reason and usage: fixed by the question.
        outcome: ``whole``, ``lost`` or ``hung``; `victims.compare` sets ``altered``.
        why: reason of a bad outcome.
        returns: number of resumptions.
        refused: number of refusals with a status that asks to try again.
    """

    number: int
    began: float
    ended: float = 0.0
    arrivals: list[tuple[float, int]] = []
    answer: list[Any] = []
    outcome: str = ""
    why: str = ""
    request: str = ""
    returns: int = 0
    refused: int = 0


class StreamLost(Exception):
    """The stream cannot be resumed; the message is the gateway's answer."""


def client() -> httpx.AsyncClient:
    """A client for any number of readers."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=httpx.Timeout(SILENCE_S), limits=limits, trust_env=False)


async def read(
    http: httpx.AsyncClient, urls: Sequence[str], key: str, body: dict[str, Any], number: int
) -> StreamRecord:
    """Reads the answer to ``body``, sent with ``key`` to the ``number``-th gateway first; returns its record."""
    reader = _Reader(urls, key, body, number)
    try:
        async with asyncio.timeout(None) as patience:
            reader.patience = patience
            reader.progress()
            await reader.run(http)
        reader.record.outcome = "whole"
    except StreamLost as error:
        reader.record.outcome, reader.record.why = "lost", str(error)
    except TimeoutError:
        reader.record.outcome, reader.record.why = "hung", f"nothing for {PATIENCE_S:g} s; {reader.last_answer}"
    reader.record.ended = time.monotonic()
    reader.record.answer = [reader.tokens, reader.text, reader.finish, reader.usage]
    return reader.record


class _Reader:
    def __init__(self, urls: Sequence[str], key: str, body: dict[str, Any], number: int) -> None:
        self._urls, self._key, self._turn = urls, key, number
        streamed = {"stream": True, "return_tokens": True, "stream_options": {"include_usage": True}}
        self._body = body | streamed
        self.record = StreamRecord(number, time.monotonic())
        self.patience: asyncio.Timeout
        self.last_answer = "no gateway answered"
        self._last = ""
        self._done = False
        self.tokens: list[int] = []
        self.text, self.finish = "", ""
        self.usage: list[int] = []

    def progress(self) -> None:
        """Restarts the time limit, since a token has arrived."""
        self.patience.reschedule(asyncio.get_running_loop().time() + PATIENCE_S)

    async def run(self, http: httpx.AsyncClient) -> None:
        while not self._done:
            try:
                await self._connect(http)
            except httpx.TransportError as error:
                self.last_answer = f"{type(error).__name__} at gateway {self._turn % len(self._urls)}"
            if not self._done:
                self.record.returns += 1
                self._turn += 1
                await asyncio.sleep(_RETRY_S)
        if not self.usage:
            raise StreamLost("the stream ended before its end")

    async def _connect(self, http: httpx.AsyncClient) -> None:
        url, headers = self._urls[self._turn % len(self._urls)], {"authorization": f"Bearer {self._key}"}
        request = self.record.request
        if request:
            headers |= {"last-event-id": self._last} if self._last else {}
            stream = http.stream("GET", f"{url}/v1/streams/{request}", headers=headers)
        else:
            headers |= {"x-outrider-on-disconnect": "continue"}
            stream = http.stream("POST", f"{url}/v1/completions", json=self._body, headers=headers)
        async with stream as response:
            if response.status_code == 200:
                self.record.request = request or response.headers["x-request-id"]
                await self._listen(response)
            else:
                self._refused(response.status_code, (await response.aread()).decode(errors="replace"), bool(request))

    def _refused(self, status: int, text: str, submitted: bool) -> None:
        """Handles a refusal: submits a stream again that no gateway knows and that has sent nothing."""
        self.last_answer = f"{status} {text}"
        if submitted and status == 404 and not self._last:
            self.record.request = ""
        elif submitted and status == 204:
            self._done = True
        elif status not in (429, 502, 503, 504):
            raise StreamLost(f"{status} {text}")
        elif not submitted:
            self.record.refused += 1

    async def _listen(self, response: httpx.Response) -> None:
        self.last_answer = "the stream is silent"
        async for event in EventSource(response).aiter_sse():
            self._take(event)
            if self._done:
                return
        raise httpx.RemoteProtocolError("the stream broke off")

    def _take(self, event: ServerSentEvent) -> None:
        if event.data == "[DONE]":
            self._done = True
        elif '"service_unavailable_error"' in event.data:
            self.last_answer = event.data
        else:
            self._add(event.json())
        self._last = event.id or self._last

    def _add(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error"):
            raise StreamLost(str(chunk["error"]))
        for choice in chunk["choices"]:
            new = chunk["outrider"]["tokens"]
            self.tokens += new
            self.text += choice["text"]
            self.finish = choice["finish_reason"] or self.finish
            self.record.arrivals.append((time.monotonic(), len(new)))
            self.progress()
        if usage := chunk.get("usage"):
            self.usage = [usage["prompt_tokens"], usage["completion_tokens"]]
