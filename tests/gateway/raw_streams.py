"""Streams as raw bytes, each event with its id, for exact comparisons."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx

from tests.gateway.stack import MODEL


class Event(NamedTuple):
    """One server-sent event."""

    data: bytes
    id: str

    @property
    def json(self) -> dict[str, Any]:
        """What it says."""
        return dict(json.loads(self.data))


class RawStream:
    """One stream, read until it ends or until enough events have come; then the connection is dropped."""

    def __init__(self, url: str, key: str = "") -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.events: list[Event] = []
        self.request = ""

    async def begin(self, *, chat: bool = False, enough: int = 1 << 30, stay: bool = False, **body: Any) -> RawStream:
        """Begins a stream with a fixed seed."""
        asked = {"model": MODEL, "stream": True, "seed": 7, "ignore_eos": True, "speculation": "off"}
        asked |= {"messages": [{"role": "user", "content": "def f("}]} if chat else {"prompt": "def f("}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        headers = {"x-outrider-on-disconnect": "continue"} if stay else {}
        return await self._read("POST", path, enough, json=asked | body, headers=headers)

    async def resume(self, request: str, last: str | None = None, enough: int = 1 << 30) -> RawStream:
        """Resumes a stream behind the event ``last``."""
        headers = {"last-event-id": last} if last else {}
        return await self._read("GET", f"/v1/streams/{request}", enough, headers=headers)

    async def _read(self, method: str, path: str, enough: int, **asked: Any) -> RawStream:
        async with (
            httpx.AsyncClient(timeout=60, headers=self._headers) as client,
            client.stream(method, self._url + path, **asked) as response,
        ):
            assert response.status_code == 200, await response.aread()
            self.request = response.headers["x-request-id"]
            self.headers = response.headers
            waiting = b""
            async for data in response.aiter_bytes():
                *events, waiting = (waiting + data).split(b"\n\n")
                self.events += map(_event, events)
                if len(self.events) >= enough:
                    del self.events[enough:]
                    return self
        return self

    @property
    def last(self) -> str:
        """Id of the last event."""
        return self.events[-1].id


def _event(text: bytes) -> Event:
    lines = dict(line.split(b": ", 1) for line in text.split(b"\n"))
    return Event(lines[b"data"], lines[b"id"].decode())


def without_variable_parts(events: list[Event], request: str) -> list[tuple[bytes, str]]:
    """Events without the request's id, time and verifier, which differ between requests."""
    return [
        (
            re.sub(rb'"created":\d+|"verifier":"[^"]*"', b"", event.data.replace(request.encode(), b"")),
            event.id.replace(request, ""),
        )
        for event in events
    ]
