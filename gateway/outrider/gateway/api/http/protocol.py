"""One connection over HTTP/1.1, with bounds on the bytes, headers and seconds of a request."""

from __future__ import annotations

import asyncio
from functools import partial
from secrets import token_hex
from typing import Any

import httptools
import msgspec
from outrider.gateway import metrics
from outrider.gateway.api.http.connections import BufferedTransport, Connections, notice_absence
from outrider.gateway.errors import HeadersTooLarge, TargetTooLong, TimedOut, error_answer, error_headers
from outrider.gateway.settings import Bounds
from outrider.mesh.errors import InvalidRequest, OutriderError, Unavailable
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

_FRAMING_PER_BYTE = 8
"""Most bytes of chunk framing for each byte of a body: slightly more than chunks of one byte need."""
_CLOSE_S = 2.0
_DISCARDED = 1 << 20
"""Bytes that a refused client may still send, within ``_CLOSE_S`` seconds: an immediate reset would lose the answer."""


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, with the ``bounds`` that it lacks.

    Bytes are counted before the parser joins them. Trailers and extensions of chunks have the same bound as headers.
    """

    def __init__(self, *args: Any, bounds: Bounds, connections: Connections, **more: Any) -> None:
        super().__init__(*args, **more)
        self._bounds, self._connections = bounds, connections
        self._address: str | None = None  # that this connection is counted under
        self._in_head, self._begun, self._refused = True, False, False
        self._part = 0  # number of heads and bodies that have begun
        self._size = self._body = self._discarded = 0  # bytes of the present part so far
        self._read = 0  # upper bound on the bytes of the present part
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begins, unless there are too many connections.

        A client that sends nothing is closed like one that is idle between requests.
        """
        super().connection_made(BufferedTransport(transport))  # type: ignore[arg-type] # it forwards to a transport
        address = str((transport.get_extra_info("peername") or [""])[0])
        try:
            self._connections.enter(address)
        except OutriderError as error:
            self._refuse(error)
            return self.transport.close()
        self._address = address
        notice_absence(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer, and ends."""
        self._unset_timer()
        if self._address is not None:
            self._connections.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses ``data``; answers with an error and closes if a bound is exceeded or the data is not HTTP."""
        if self._refused:
            return self._discard(len(data))
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            why = error.__context__
            self._refuse(why if isinstance(why, OutriderError) else InvalidRequest("this is no HTTP/1.1 request"))
        except OutriderError as error:
            self._refuse(error)
        else:
            self._watch()

    def give_up(self) -> None:
        """Answers a request whose answer has not begun with 503, and cuts an answer that has begun."""
        if self._refused or self.cycle is None or self.cycle.response_complete:
            return
        if self.cycle.response_started:
            return self.transport.close()
        self._refused = self.cycle.disconnected = True
        self.cycle.message_event.set()
        self._answer(Unavailable("this gateway is about to end", retry_after=1.0))

    def _feed(self, data: bytes) -> None:
        room = self._bounds.header_bytes - self._size
        if self._in_head and len(data) > room:
            self._parse(data[:room])
            data = data[room:]
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        while data:
            part = self._part
            self._read = self._size + len(data)
            rest = self._parse_request(data)
            if part == self._part:
                self._size += len(data)
                self._require_room()
            data = rest

    def _parse_request(self, data: bytes) -> bytes:
        """Parses ``data`` up to the first head that asks for an upgrade, and that head without it; what is behind it.

        The parser takes such a head for the end of HTTP. No upgrade is offered here, and a server that offers none
        answers the request over HTTP/1.1 (RFC 9110, 7.8).
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(head)
            return data[upgrade.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"".join([line, *headers, b"\r\n"])

    def _require_room(self) -> None:
        """Raises `OutriderError` if a head, or the framing of a body, is as large as its bound and has not ended."""
        if not self._in_head and self._size - self._body >= self._bounds.header_bytes + _FRAMING_PER_BYTE * self._body:
            raise HeadersTooLarge(f"trailers and extensions of chunks take more than {self._bounds.header_bytes} bytes")
        if self._in_head and self._size >= self._bounds.header_bytes:
            raise self._too_large()

    def _too_large(self) -> OutriderError:
        most = self._bounds.header_bytes
        if self._begun and 2 * len(self.url) > most:
            return TargetTooLong(f"the request's target is too long: with all headers it may take {most} bytes")
        return HeadersTooLarge(f"the request's line and headers take more than {most} bytes")

    def _begin(self, *, head: bool) -> None:
        self._in_head, self._begun = head, False
        self._part += 1
        self._size = self._body = self._read = 0
        self._unset_timer()

    def on_message_begin(self) -> None:
        """Notes that a request begins."""
        self._begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; drops trailers, since the request is being answered already."""
        if not self._in_head:
            return
        if len(self.headers) >= self._bounds.headers:
            raise HeadersTooLarge(f"the request has more than {self._bounds.headers} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Checks the size of a head whose bytes arrived together with an earlier request, and starts to answer."""
        if self._read > self._bounds.header_bytes:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self._bounds.header_bytes:
                raise self._too_large()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise InvalidRequest("CONNECT is not supported: this is no proxy")
            return  # `_parse_request` has the head come again
        self._begin(head=False)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Notes that a request has ended."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._begin(head=True)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Starts to answer; a client of HTTP/1.0 knows no chunks."""
        older = cycle.scope["http_version"] != "1.1"
        super()._start_asgi_task(cycle, partial(_answer_until_close, app, cycle) if older else app)

    def on_response_complete(self) -> None:
        """Closes the connection if the answer is complete and the body does not end within ``body_idle_s`` seconds."""
        super().on_response_complete()
        if not self._in_head and self.cycle.response_complete:
            self.loop.call_later(self._bounds.body_idle_s, self._close_in_part, self._part)

    def _close_in_part(self, part: int) -> None:
        if part == self._part and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        if self._timer is None and self._in_head and (self._begun or self._size):
            self._timer = self.loop.call_later(self._bounds.header_s, self._on_header_timeout)

    def _on_header_timeout(self) -> None:
        if not self.transport.is_closing():
            self._refuse(TimedOut(f"the headers did not arrive within {self._bounds.header_s:g} s"))

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, error: OutriderError) -> None:
        """Answers with ``error``, after the answers to earlier requests, and closes."""
        self._refused = True
        self._unset_timer()
        if self.cycle is None or self.cycle.response_complete:
            self._answer(error)
        elif self._in_head:
            self.cycle.keep_alive = False
        elif self.cycle.response_started or self.pipeline:
            self.transport.close()
        else:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._answer(error)

    def _answer(self, error: OutriderError) -> None:
        body = msgspec.json.encode(error_answer(error))
        headers = [
            *self.server_state.default_headers,
            *((name.encode(), value.encode()) for name, value in error_headers(error).items()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-request-id", token_hex(16).encode()),
        ]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[error.http_status], *lines, b"\r\n", body]))
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_CLOSE_S, self.transport.abort)
        metrics.requests.labels("none", str(error.http_status)).inc()

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > _DISCARDED:
            self.transport.abort()


async def _answer_until_close(
    app: ASGIApp, cycle: RequestResponseCycle, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answers a request of HTTP/1.0: an answer without a length ends with the connection (RFC 9112, 6.3)."""
    cycle.keep_alive = cycle.waiting_for_100_continue = False
    unknown = False

    async def sending(message: Message) -> None:
        nonlocal unknown
        if message["type"] == "http.response.start":
            unknown = all(name.lower() != b"content-length" for name, _ in message["headers"])
            if unknown:
                cycle.chunked_encoding = False
        elif unknown:
            cycle.expected_content_length = len(message.get("body", b""))  # uvicorn compares both
        await send(message)

    await app(scope, receive, sending)
