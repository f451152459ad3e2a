"""One connection over HTTP/1.1, with bounds on what a request may send before it is understood."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import httptools
import msgspec
from outrider.gateway import metrics
from outrider.gateway.doors.http.corked import Corked
from outrider.gateway.errors import HeadersTooLarge, TargetTooLong, TimedOut, error_answer
from outrider.gateway.settings import Bounds
from outrider.mesh.errors import InvalidRequest, OutriderError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_A_BYTE = 8
"""Bytes of a chunk's frame that each byte of a body may take: as many as chunks of one byte need, and some more."""
_CLOSE_S = 2.0
_DISCARDED = 1 << 20
"""A refused client may still send so much, for so long: a connection that is reset at once loses its answer."""


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which has no bounds of its own.

    Bytes are counted before the parser joins them. Trailers and extensions of chunks have the same bound as headers.
    """

    def __init__(self, *args: Any, bounds: Bounds, **more: Any) -> None:
        super().__init__(*args, **more)
        self._bounds = bounds
        self._in_head, self._begun, self._refused = True, False, False
        self._part = 0  # grows with every head and every body that begins
        self._size = self._body = self._discarded = 0  # bytes of this part so far
        self._read = 0  # bytes that may belong to the part under way, at most
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begins; a client that sends nothing is like one that is idle between requests."""
        super().connection_made(Corked(transport))  # type: ignore[arg-type] # it has what a transport has
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        self._unset_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what has arrived, or answers why not and closes."""
        if self._refused:
            return self._discard(len(data))
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        except httptools.HttpParserError as error:
            why = error.__context__
            self._refuse(why if isinstance(why, OutriderError) else InvalidRequest("this is no HTTP/1.1 request"))
        except OutriderError as error:
            self._refuse(error)
        else:
            self._watch()

    def _feed(self, data: bytes) -> None:
        room = self._bounds.header_bytes - self._size
        if self._in_head and len(data) > room:
            self._parse(data[:room])
            data = data[room:]
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        part = self._part
        self._read = self._size + len(data)
        self.parser.feed_data(data)
        if part == self._part:
            self._size += len(data)
            self._require_room()

    def _require_room(self) -> None:
        """Raises an error where a head, or what frames a body, has as many bytes as it may have and does not end."""
        if not self._in_head and self._size - self._body >= self._bounds.header_bytes + _A_BYTE * self._body:
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
        """A request begins."""
        self._begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; those behind a body are dropped, since the request is being answered."""
        if not self._in_head:
            return
        if len(self.headers) >= self._bounds.headers:
            raise HeadersTooLarge(f"the request has more than {self._bounds.headers} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts to answer; a head that began behind another request was not counted yet."""
        if self._read > self._bounds.header_bytes:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self._bounds.header_bytes:
                raise self._too_large()
        self._begin(head=False)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has ended."""
        super().on_message_complete()
        self._begin(head=True)

    def on_response_complete(self) -> None:
        """A body that nobody waited for has a moment to end; then the connection goes."""
        super().on_response_complete()
        if not self._in_head and self.cycle.response_complete:
            self.loop.call_later(self._bounds.body_idle_s, self._leave, self._part)

    def _leave(self, part: int) -> None:
        if part == self._part and not self.transport.is_closing():
            self.transport.close()

    def _watch(self) -> None:
        if self._timer is None and self._in_head and (self._begun or self._size):
            self._timer = self.loop.call_later(self._bounds.header_s, self._late)

    def _late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(TimedOut(f"the headers did not arrive within {self._bounds.header_s:g} s"))

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, error: OutriderError) -> None:
        """Answers with ``error`` and closes, behind the answers to requests before."""
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
