"""Upgrades that are not offered, clients of HTTP/1.0, and bodies in codings."""

from __future__ import annotations

import gzip
import zlib

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tests.gateway.raw_http import POST, served, tell

BODY = b'{"a": "' + b"b" * 40 + b'"}'
LENGTH = b"content-length: %d\r\n\r\n" % len(BODY)
CHUNKS = b"transfer-encoding: chunked\r\n\r\n"
CHUNKED_BODY = b"".join(b"%x\r\n%b\r\n" % (len(BODY[at : at + 9]), BODY[at : at + 9]) for at in range(0, len(BODY), 9))
H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
WEBSOCKET = b"connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nsec-websocket-version: 13\r\n"
OTHERS = b"connection: upgrade\r\nupgrade: TLS/1.0, IRC/6.9\r\nupgrade: foo\r\n"
LAST = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("body", [LENGTH + BODY, CHUNKS + CHUNKED_BODY + b"0\r\n\r\n"], ids=["length", "chunks"])
@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET, OTHERS], ids=["h2c", "websocket", "others"])
@pytest.mark.parametrize("piece", [1, 50, 1 << 20])
async def test_an_upgrade_is_declined_and_the_request_answered(piece: int, upgrade: bytes, body: bytes) -> None:
    data = POST + upgrade + body + LAST
    async with served() as client:
        await client.send(*[data[at : at + piece] for at in range(0, len(data), piece)])
        first, last = await client.answers()
    assert (first.status, first.json["body"]) == (200, BODY.decode())
    assert "upgrade" not in first.json["headers"]
    assert last.status == 200


@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET, OTHERS], ids=["h2c", "websocket", "others"])
async def test_the_body_may_come_later_than_the_head_that_asks_for_an_upgrade(upgrade: bytes) -> None:
    async with served() as client:
        await client.send(POST + upgrade.replace(b"connection: ", b"connection: close, ") + LENGTH)
        await client.send(BODY)
        assert (await client.answer()).json["body"] == BODY.decode()


async def test_any_number_of_requests_in_one_piece_may_ask_for_upgrades() -> None:
    async with served() as client:
        await client.send((b"GET / HTTP/1.1\r\n" + H2C + b"\r\n") * 300 + LAST)
        assert [answer.status for answer in await client.answers()] == [200] * 301


async def test_a_tunnel_is_refused() -> None:
    async with served() as client:
        await client.send(b"CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await client.answer()
    assert (answer.status, answer.json["error"]["message"]) == (400, "CONNECT is not supported: this is no proxy")


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with parts whose length nobody knows before."""

    async def parts() -> object:
        for number in range(3):
            yield b"data: %d\n\n" % number

    await Request(scope, receive).body()
    await StreamingResponse(parts())(scope, receive, send)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [b"0.9", b"1.0"])
@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
async def test_a_stream_to_an_older_client_ends_with_the_connection(version: bytes, connection: bytes) -> None:
    async with served(app=stream) as client:
        head = POST.replace(b"HTTP/1.1", b"HTTP/" + version) + b"connection: " + connection + b"\r\n"
        await client.send(head + b"expect: 100-continue\r\n" + LENGTH + BODY)
        answer = await client.answer()
    assert (answer.status, answer.body) == (200, b"data: 0\n\ndata: 1\n\ndata: 2\n\n")
    assert answer.headers["connection"] == "close"
    assert "transfer-encoding" not in answer.headers


async def test_an_answer_of_known_length_says_it_to_an_older_client_too() -> None:
    async with served(app=tell) as client:
        await client.send(POST.replace(b"HTTP/1.1", b"HTTP/1.0") + LENGTH + BODY)
        answer = await client.answer()
    assert (answer.headers["content-length"], answer.json["body"]) == (str(len(answer.body)), BODY.decode())


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"content-encoding: gzip", gzip.compress(BODY, mtime=0)),
        (b"Content-Encoding: deflate", zlib.compress(BODY)),
        (b"content-encoding: identity, br", BODY),
        (b"content-encoding: identity\r\ncontent-encoding: zstd", BODY),
    ],
)
async def test_a_body_in_a_coding_is_refused_by_its_name(coding: bytes, body: bytes) -> None:
    async with served() as client:
        length = b"\r\ncontent-length: %d\r\n\r\n" % len(body)
        await client.send(POST + b"connection: close\r\n" + coding + length + body)
        answer = await client.answer()
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
    assert f"content-encoding is {coding.split()[-1].decode()}" in answer.json["error"]["message"]


async def test_chunks_of_a_body_in_a_coding_are_refused() -> None:
    packed = gzip.compress(BODY, mtime=0)
    async with served() as client:
        await client.send(POST + b"connection: close\r\ntransfer-encoding: gzip, chunked\r\n\r\n")
        await client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed))
        answer = await client.answer()
    assert answer.status == 415
    assert "transfer-encoding is gzip" in answer.json["error"]["message"]


async def test_a_body_that_says_it_is_in_no_coding_is_taken() -> None:
    async with served() as client:
        await client.send(POST + b"connection: close\r\ncontent-encoding: Identity\r\n" + LENGTH + BODY)
        assert (await client.answer()).json["body"] == BODY.decode()
