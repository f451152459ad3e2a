"""Server-sent events (HTML standard, 9.2), and positions in a stream: the ``id`` of each event."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from enum import IntEnum
from math import inf
from typing import Generic, TypeVar

import msgspec
from outrider.gateway.api.http.cells import evenly
from outrider.gateway.api.http.messages import until_disconnected
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import Internal, InvalidRequest, OutriderError
from outrider.mesh.telemetry import get_logger
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

_PLACE = r"-?\d{1,10}e?"
_TEXT = re.compile(
    rf"(?P<request>[A-Za-z0-9_-]+):(?:o(?P<openings>\d{{1,4}})|(?P<places>{_PLACE}(?:\.{_PLACE})*)|(?P<tail>usage|done))"
)


class Tail(IntEnum):
    """The last event so far behind the last tokens."""

    NONE = 0
    USAGE = 1
    DONE = 2


class Position(msgspec.Struct):
    """The part of a stream that has been sent: opening chunks, tokens of each choice, and the tail.

    ``places`` holds the index of each choice's next token, ``ended`` whether each choice's end has been sent. In text,
    the request's id and a colon come first, and then one of ``o1`` (one opening chunk has been sent), ``12`` (the next
    token has index 12), ``12e`` (the choice ended before index 12), ``12.9e`` (two choices), ``usage`` and ``done``.
    """

    places: list[int]
    ended: list[bool]
    openings: int = 0
    tail: Tail = Tail.NONE

    @classmethod
    def start(cls, places: Sequence[int]) -> Position:
        """The start of a stream whose choices begin at the token indices ``places``."""
        return cls([*places], [False] * len(places))

    def read(self, text: str, request: str, openings: int) -> Position:
        """The position in ``text``, the id of an event of ``request``; this position must be the start of the stream.

        The stream has ``openings`` opening chunks. Raises `InvalidRequest` if ``text`` is not such an id.
        """
        match = _TEXT.fullmatch(text)
        if match is None or match["request"] != request:
            raise InvalidRequest(f"Last-Event-ID is no id of an event of the stream {request}", param="last_event_id")
        if match["tail"] is not None:
            return Position(self.places, [True] * len(self.ended), openings, Tail[match["tail"].upper()])
        if match["openings"] is not None:
            return Position(self.places, self.ended, int(match["openings"]))
        entries = match["places"].split(".")
        if len(entries) != len(self.places):
            raise InvalidRequest(
                f"Last-Event-ID must have a position for each of the {len(self.places)} choices", param="last_event_id"
            )
        ended = [entry.endswith("e") for entry in entries]
        return Position([int(entry.removesuffix("e")) for entry in entries], ended, openings)

    def text(self, request: str, openings: int) -> str:
        """This position as the id of an event of ``request``, whose stream has ``openings`` opening chunks."""
        if self.tail is not Tail.NONE:
            return f"{request}:{self.tail.name.lower()}"
        if self.openings < openings:
            return f"{request}:o{self.openings}"
        places = [f"{place}e" if end else str(place) for place, end in zip(self.places, self.ended, strict=True)]
        return f"{request}:{'.'.join(places)}"


_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""Characters that end a line for some clients, though not in the standard."""
_encode = msgspec.json.Encoder().encode
_MARK = "\x00outrider\x00"
"""A text that no other member of an event holds."""


class Template:
    """Events that differ in one text: ``make`` gives the value of the event of a text."""

    def __init__(self, make: Callable[[str], msgspec.Struct]) -> None:
        mark = _data(_MARK)
        self._head, _, self._tail = _data(make(_MARK)).partition(mark)

    def event(self, text: str, id_: str) -> bytes:
        """The event of ``text``, as `event`."""
        return b"data: %b%b%b\nid: %b\n\n" % (self._head, _data(text), self._tail, id_.encode())


def event(value: msgspec.Struct, id_: str) -> bytes:
    """``value`` as one event of JSON data; ``id_`` is its position, which a client sends when it resumes."""
    return b"data: %b\nid: %b\n\n" % (_data(value), id_.encode())


def typed_event(value: msgspec.Struct) -> bytes:
    """``value`` as one event of JSON data; the value's tag is the event's type."""
    return b"event: %b\ndata: %b\n\n" % (str(value.__struct_config__.tag).encode(), _data(value))


def done(id_: str) -> bytes:
    """The event that ends a stream."""
    return b"data: [DONE]\nid: %b\n\n" % id_.encode()


def with_retry(data: bytes, milliseconds: int) -> bytes:
    """``data``, one event, with the time that the client is to wait before it reconnects."""
    return b"%bretry: %d\n\n" % (data[:-1], milliseconds)


def _data(value: msgspec.Struct | str) -> bytes:
    data = _encode(value)
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


COMMENT = b":\n"
"""A sign of life: a comment line, as the HTML standard suggests (9.2.7).

No blank line follows: behind an ``id`` that would be an event without data for the parsers of httpx-sse and OpenAI's
client, which keep the id.
"""
F = TypeVar("F")
_log = get_logger("http")


class EventStream(Response, Generic[F]):
    """The ``events`` of what ``starting`` starts; ``end`` ends it after the last event, or when the client has left.

    An error of ``starting`` is raised, and so gets a status of its own, unless ``keepalive_s`` seconds have passed
    before: the answer then begins with a comment, and the error becomes the bytes that ``failed`` makes of it. After
    every further silence the client gets ``alive``, before the first event a comment. ``before`` is called before the
    headers are sent. With ``obfuscated``, sizes and times are those of `evenly`.
    """

    media_type = "text/event-stream"
    comments = True
    """Whether the format has comments; a stream without them gets ``alive`` before the first event, too."""

    def __init__(
        self,
        starting: Awaitable[F],
        events: Callable[[F], AsyncGenerator[bytes, None]],
        end: Callable[[F], Awaitable[None]],
        failed: Callable[[OutriderError], bytes],
        settings: GatewaySettings,
        *,
        alive: bytes = COMMENT,
        before: Callable[[], None] | None = None,
        obfuscated: bool = False,
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._starting, self._events, self._end, self._failed = starting, events, end, failed
        self._settings, self._alive, self._before, self._obfuscated = settings, alive, before, obfuscated
        self._begun = self._told = False
        self._sent = inf
        """When the last event was sent; infinite while one is being sent."""
        self._timer: asyncio.TimerHandle | None = None
        self._life: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events as they come."""
        self._send, self._time = send, asyncio.get_running_loop().time
        started: list[F] = []
        try:
            await until_disconnected(receive, self._run(started))
        finally:
            self._stop()
            for each in started:
                await self._end(each)

    async def _run(self, started: list[F]) -> None:
        self._sent = self._time()
        self._watch()
        try:
            started.append(await self._starting)
        except Exception as error:
            await self._fail(error)
        else:
            await self._send_events(self._events(started[0]))
        self._stop()
        await self._send({"type": "http.response.body", "body": b""})

    async def _send_events(self, events: AsyncGenerator[bytes, None]) -> None:
        send, now = self._send, self._time
        async with aclosing(evenly(events, self._settings) if self._obfuscated else events) as news:
            await self._take_turn()
            await self._begin()
            self._sent = now()
            async for data in news:
                if self._life is not None:
                    await self._take_turn()
                self._sent, self._told = inf, True
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._sent = now()

    async def _fail(self, error: Exception) -> None:
        """Raises ``error`` if the answer has not begun, and else tells it."""
        await self._take_turn()
        if not self._begun:
            raise error
        if not isinstance(error, OutriderError):
            _log.error("a stream failed to start", exc_info=error)
            error = Internal()
        await self._send({"type": "http.response.body", "body": self._failed(error), "more_body": True})

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            if self._before is not None:
                self._before()
            await self._send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _take_turn(self) -> None:
        """Lets a sign of life be sent to its end, and no further one begin."""
        self._sent = inf
        if self._life is not None:
            await self._life

    def _watch(self) -> None:
        """Starts the one timer anew, which serves all silences: a timer for each event would cost as much as it."""
        if not (silence_s := self._settings.keepalive_s):
            return
        left = self._sent + silence_s - self._time()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(min(left, silence_s), self._watch)
        else:
            self._life = asyncio.create_task(self._show_life())

    async def _show_life(self) -> None:
        await self._begin()
        body = self._alive if self._told or not self.comments else COMMENT
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        self._sent, self._life = self._time() if self._sent < inf else inf, None
        self._watch()

    def _stop(self) -> None:
        for each in (self._timer, self._life):
            if each is not None:
                each.cancel()
