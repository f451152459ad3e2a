"""Hostile bytes over HTTP: framing, headers, slow and half-open connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from outrider.loadtest.attack.requests import Connection, open_connection

from tests.gateway.hostile.case import ANSWER_S, CLOSED, SERVED, Case, Outcome, Target
from tests.gateway.hostile.connections import count

_LINE = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
_CHUNKED = _LINE + b"Transfer-Encoding: chunked\r\n"
_PIPELINED = 100


def _key(target: Target) -> bytes:
    return f"Authorization: Bearer {target.key}\r\n".encode() if target.key else b""


async def _status(connection: Connection) -> Outcome:
    status = await connection.status(ANSWER_S)
    return Outcome(SERVED if status.startswith("2") else status)


def sent(name: str, what: str, answers: str | tuple[str, ...], *parts: bytes, keyed: bool = False) -> Case:
    """A case that sends ``parts`` and reads the first status; ``KEY`` in them stands for the header with the key."""

    async def run(target: Target) -> Outcome:
        async with open_connection(target.url) as connection:
            for part in parts:
                if not await connection.send(part.replace(b"KEY\r\n", _key(target))):
                    break
            return await _status(connection)

    return Case(name, "HTTP", what, (answers,) if isinstance(answers, str) else answers, "", run)


async def _pipelined(target: Target) -> Outcome:
    async with open_connection(target.url) as connection:
        await connection.send((_GET + b"\r\n") * _PIPELINED)
        served = await count(connection, b"HTTP/1.1 200", _PIPELINED, ANSWER_S)
    return Outcome(SERVED if served == _PIPELINED else f"{served} answers")


async def _crowd(target: Target) -> Outcome:
    """Opens connections until one is refused; the others stay open meanwhile."""
    async with contextlib.AsyncExitStack() as stack:
        opened = [open_connection(target.url) for _ in range(target.connections)]
        await asyncio.gather(*(stack.enter_async_context(one) for one in opened))
        async with open_connection(target.url) as last:
            await asyncio.sleep(0.05)
            return await _status(last)


async def _half_open(target: Target) -> Outcome:
    """Closes the sending side after half a head; the gateway has to close its own."""
    async with open_connection(target.url) as connection:
        await connection.send(_GET)
        connection.writer.write_eof()
        return await _status(connection)


async def _gone(target: Target) -> Outcome:
    """Goes away after half a body, a few times; the gateway has to answer others."""
    for _ in range(20):
        async with open_connection(target.url) as connection:
            await connection.send(_LINE + _key(target) + b'Content-Length: 1000000\r\n\r\n{"prompt": "')
    return await _healthy(target)


async def _never_read(target: Target) -> Outcome:
    """Asks for a stream and reads nothing of it."""
    body = b'{"prompt": "a", "stream": true, "max_tokens": 200, "ignore_eos": true}'
    async with open_connection(target.url) as connection:
        await connection.send(_LINE + _key(target) + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(0.2)
    return await _healthy(target)


async def _healthy(target: Target) -> Outcome:
    async with open_connection(target.url) as connection:
        await connection.send(_GET + b"\r\n")
        return await _status(connection)


def _headers(count: int) -> bytes:
    return b"".join(b"X-%d: 1\r\n" % number for number in range(count))


_FRAMING: Sequence[Case] = [
    sent("length-huge", "a body of a terabyte, as its header says", "413",
         _LINE + b"KEY\r\nContent-Length: 1000000000000\r\n\r\n{"),
    sent("length-negative", "a negative length", "400", _LINE + b"Content-Length: -1\r\n\r\n"),
    sent("length-words", "a length in letters", "400", _LINE + b"Content-Length: ten\r\n\r\n"),
    sent("length-two", "two different lengths", "400", _LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    sent("length-and-chunks", "a length and chunks, as request smuggling has them", "400",
         _CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n"),
    sent("chunks-twice", "chunked twice", "400", _CHUNKED + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    sent("chunk-size", "a chunk's size of 2^80", "400", _CHUNKED + b"KEY\r\n\r\nfffffffffffffffffffff\r\n"),
    sent("chunk-rubbish", "a chunk's size that is no number", "400", _CHUNKED + b"KEY\r\n\r\nzz\r\n"),
    sent("chunk-extension", "an extension of a chunk without an end", "431", _CHUNKED + b"KEY\r\n\r\n1;x=",
         *[b"a" * 10_000] * 20),
    sent("chunk-trailers", "trailers without an end", "431", _CHUNKED + b"KEY\r\n\r\n2\r\n{}\r\n0\r\nX: ",
         *[b"a" * 10_000] * 20),
    sent("chunk-bytes", "chunks of one byte", "400", _CHUNKED + b"KEY\r\n\r\n" + b"1\r\n[\r\n" * 1000 + b"0\r\n\r\n"),
]  # fmt: skip

_HEADS: Sequence[Case] = [
    sent("header-long", "a header of 200 kB", "431", _GET + b"X: ", *[b"a" * 10_000] * 20),
    sent("headers-many", "500 headers", "431", _GET + _headers(500) + b"\r\n"),
    sent("target-long", "a path of 100 kB", "414", b"GET /", *[b"a" * 10_000] * 10),
    sent("header-nul", "NUL in a header", "400", _GET + b"X: a\x00b\r\n\r\n"),
    sent("header-folded", "a space before a header's colon", "400", _GET + b"X : a\r\n\r\n"),
    sent("header-two-keys", "two keys", "400",
         _LINE + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: 2\r\n\r\n{}"),
    sent("method-unknown", "a method that HTTP does not have", "400", b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n"),
    sent("method-wrong", "PATCH on completions", "405", _LINE.replace(b"POST", b"PATCH") + b"KEY\r\n\r\n"),
    sent("version-unknown", "HTTP/9.9", "400", b"GET / HTTP/9.9\r\n\r\n"),
    sent("version-2", "HTTP/2 in the clear", ("400", "505"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    sent("tls", "the beginning of TLS", "400", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100),
    sent("upgrade", "an upgrade to a web socket", SERVED,
         _GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: YQ==\r\n\r\n"),
    sent("path-dots", "a path out of the root", "404", b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"),
]  # fmt: skip

_CONNECTIONS: Sequence[Case] = [
    sent("slow-head", "half a head, and then nothing", "408", _GET + b"X-Slow: a"),
    sent("slow-body", "half a body, and then nothing", "408", _LINE + b'KEY\r\nContent-Length: 100\r\n\r\n{"prompt'),
    Case("half-open", "HTTP", "half a head, and the end of the data", (CLOSED, "400"), "", _half_open),
    Case("gone", "HTTP", "20 clients that leave in mid-body", (SERVED,), "", _gone),
    Case("never-reading", "HTTP", "a client that does not read its stream", (SERVED,), "", _never_read),
    Case("pipelined", "HTTP", "100 requests at once on one connection", (SERVED,), "", _pipelined),
    Case("connections-many", "HTTP", "more connections than one address may have", ("429",), "", _crowd),
]

CASES = [*_FRAMING, *_HEADS, *_CONNECTIONS]
