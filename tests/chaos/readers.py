"""Readers that resume: the Python client, and a plain HTTP client that sends `Last-Event-ID`."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
from httpx_sse import EventSource, ServerSentEvent
from outrider.mesh.access import Access
from outrider_client import AsyncClient

from tests.chaos.journeys import Journey
from tests.chaos.questions import Question

PATIENCE_S = 180.0
"""Seconds; longer than a stream may hang."""


@dataclass
class Answer:
    """The content of a stream, by choice, and its usage."""

    tokens: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    texts: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    logprobs: dict[int, dict[str, list[Any]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    finish: dict[int, str] = field(default_factory=dict)
    usage: tuple[int, ...] = ()
    _first: dict[int, int] = field(default_factory=dict, compare=False)

    def take(self, chunk: dict[str, Any]) -> None:
        """Adds a chunk, which must begin where the last one of its choice ended."""
        assert "error" not in chunk or chunk["error"] is None, chunk
        for choice in chunk["choices"]:
            index, detail = choice["index"], chunk.get("outrider") or {}
            assert index not in self.finish, "a choice continued after its end"
            if detail.get("first_index") is not None:  # the first chunk of a chat has no tokens
                first = self._first.setdefault(index, detail["first_index"])
                assert detail["first_index"] == first + len(self.tokens[index]), "a token is missing or repeated"
                self.tokens[index] += detail["tokens"]
            self.texts[index] += _text(choice)
            for name, values in (choice.get("logprobs") or {}).items():
                self.logprobs[index][name] += values
            if choice["finish_reason"] is not None:
                self.finish[index] = choice["finish_reason"]
        if usage := chunk.get("usage"):
            assert not self.usage, "the usage is repeated"
            self.usage = usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


def _text(choice: dict[str, Any]) -> str:
    """What a chunk adds to a choice, with the arguments of calls."""
    if choice.get("text") is not None:
        return str(choice["text"])
    delta = choice.get("delta") or {}
    calls = [call["function"] for call in delta.get("tool_calls") or []]
    return (delta.get("content") or "") + "".join(f"{each.get('name') or ''}{each.get('arguments')}" for each in calls)


@dataclass(frozen=True)
class Gateways:
    """The ``urls`` of gateways, and what their clients need."""

    urls: list[str]
    access: Access

    @property
    def trusted(self) -> ssl.SSLContext | bool:
        """The authorities that clients trust."""
        return self.access.context() if self.access.ca else True


async def by_client(gateways: Gateways, question: Question, number: int, journey: Journey) -> Answer:
    """The answer as the Python client reads it, which resumes by itself."""
    answer, turned = (
        Answer(),
        [*gateways.urls[number % len(gateways.urls) :], *gateways.urls[: number % len(gateways.urls)]],
    )
    hooks = {"request": [journey.on_request], "response": [journey.on_response]}
    http, key = httpx.AsyncClient(event_hooks=hooks, verify=gateways.trusted), gateways.access.key or None
    async with (
        AsyncClient(turned, api_key=key, max_retries=100, resume_s=PATIENCE_S, http_client=http) as client,
        client.stream(**question.body) as stream,
    ):
        async for chunk in stream:
            answer.take(msgspec.to_builtins(chunk))
            journey.on_progress(stream.id)
    assert answer.usage, "the stream ended before its end"
    return answer


async def by_hand(gateways: Gateways, question: Question, number: int, journey: Journey) -> Answer:
    """The answer as a plain HTTP client reads it; half of the clients ask that their streams continue."""
    reader = _ByHand(gateways.urls, question, random.Random(number), journey)
    hooks = {"request": [journey.on_request], "response": [journey.on_response]}
    headers = gateways.access.headers
    async with httpx.AsyncClient(timeout=20, event_hooks=hooks, headers=headers, verify=gateways.trusted) as http:
        while not reader.done:
            try:
                await reader.connect(http)
            except httpx.TransportError:
                await reader.pause()
    assert reader.answer.usage, "the stream ended before its end"
    return reader.answer


class _ByHand:
    def __init__(self, urls: list[str], question: Question, draw: random.Random, journey: Journey) -> None:
        self._urls, self._question, self._draw, self._journey = urls, question, draw, journey
        self._stay = {"x-outrider-on-disconnect": "continue"} if draw.random() < 0.5 else {}
        self._request = self._last = ""
        self._since = time.monotonic()
        self.answer, self.done = Answer(), False

    async def connect(self, http: httpx.AsyncClient) -> None:
        url = self._draw.choice(self._urls)
        if self._request:
            headers = {"last-event-id": self._last} if self._last else {}
            stream = http.stream("GET", f"{url}/v1/streams/{self._request}", headers=headers)
        else:
            path = "chat/completions" if "messages" in self._question.body else "completions"
            stream = http.stream("POST", f"{url}/v1/{path}", json=self._question.body, headers=self._stay)
        async with stream as response:
            if response.status_code == 200:
                self._request = self._request or response.headers["x-request-id"]
                self._journey.request = self._request
                await self._read(response)
            else:
                await self._on_refusal(response)

    async def _on_refusal(self, response: httpx.Response) -> None:
        """Handles a refusal: submits a stream again that no gateway knows and that has sent nothing."""
        status, body = response.status_code, await response.aread()
        self.done = status == 204
        if status == 404 and not self._last:
            self._request = ""
        elif status != 204:
            assert status in (429, 502, 503, 504), (status, body)
        await self.pause()

    async def pause(self) -> None:
        assert time.monotonic() - self._since < PATIENCE_S, "no gateway continued the stream"
        await asyncio.sleep(0.2)

    async def _read(self, response: httpx.Response) -> None:
        async for event in EventSource(response).aiter_sse():
            self._take(event)
            if self.done:
                return
        raise httpx.RemoteProtocolError("the stream broke off")

    def _take(self, event: ServerSentEvent) -> None:
        self._since = time.monotonic()
        self._journey.on_progress(self._request)
        if event.data == "[DONE]":
            self.done = self._last.endswith(":usage")
        elif '"service_unavailable_error"' not in event.data:
            self.answer.take(event.json())
        self._last = event.id or self._last
