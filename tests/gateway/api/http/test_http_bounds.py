"""Requests that never end, have too many headers or stop half-way, sent as raw bytes."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
from outrider.gateway.api.http.connections import Connections
from outrider.gateway.settings import Bounds
from starlette.types import Receive, Scope, Send

from tests.gateway.raw_http import CHUNKED, POST, Client, served, tell

LIMIT = 64 << 10
QUICK = Bounds(header_s=0.2, body_idle_s=0.2)


@pytest.mark.parametrize("piece", [1 << 10, 60_000, 1 << 20])
async def test_headers_without_an_end_are_refused_at_the_bound(piece: int) -> None:
    async with served() as client:
        sending = asyncio.create_task(client.send(b"GET / HTTP/1.1\r\nx: ", *[b"a" * piece] * (-(-(2 << 20) // piece))))
        answer = await client.answer()
        await sending
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert "65536 bytes" in answer.json["error"]["message"]
        assert answer.headers["x-request-id"]


async def test_an_endless_target_is_refused_as_such() -> None:
    async with served() as client:
        await client.send(b"GET /" + b"a" * LIMIT)
        assert (await client.answer()).status == 414


@pytest.mark.parametrize("size", [LIMIT - 200, LIMIT + 200])
async def test_a_head_of_any_size_up_to_the_bound_is_taken(size: int) -> None:
    async with served() as client:
        start, end = b"GET / HTTP/1.1\r\nconnection: close\r\nx: ", b"\r\n\r\n"
        await client.send(start + b"a" * (size - len(start) - len(end)) + end)
        assert (await client.answer()).status == (200 if size < LIMIT else 431)


@pytest.mark.parametrize("count", [100, 101])
async def test_more_headers_than_the_bound_are_refused(count: int) -> None:
    async with served() as client:
        await client.send(b"GET / HTTP/1.1\r\nconnection: close\r\n" + b"a: b\r\n" * (count - 1) + b"\r\n")
        assert (await client.answer()).status == (200 if count == 100 else 431)


async def test_a_head_behind_another_request_has_the_same_bound() -> None:
    async with served() as client:
        await client.send(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nx: " + b"a" * 2 * LIMIT + b"\r\n\r\n")
        first, *more = [answer.status for answer in await client.answers()]
        assert (first, more) in ((200, []), (200, [431]))  # the second where the first was answered before it came


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\nhost: x\r\n", b"\r\n"])
async def test_headers_that_do_not_come_in_time_are_refused(data: bytes) -> None:
    async with served(QUICK) as client:
        await client.send(data)
        assert (await client.answer()).status == 408


async def test_a_connection_may_be_idle_between_requests_for_longer_than_headers_may_take() -> None:
    async with served(QUICK) as client:
        for connection in (b"keep-alive", b"close"):
            await asyncio.sleep(2 * QUICK.header_s)  # nothing is to happen
            await client.send(b"GET / HTTP/1.1\r\nconnection: " + connection + b"\r\n\r\n")
        assert [answer.status for answer in await client.answers()] == [200, 200]


async def test_a_connection_that_never_asks_is_as_idle_as_one_between_requests() -> None:
    async with served(keep_alive_s=0.2) as client:
        assert await client.answers() == []


@pytest.mark.parametrize(("most", "most_each", "why"), [(9, 1, "from 127.0.0.1"), (1, 9, "the most it takes")])
async def test_a_connection_too_many_is_refused_until_another_ends(most: int, most_each: int, why: str) -> None:
    async with served(connections=Connections(most, most_each)) as client:
        with closing(await client.again()) as refused:
            answer = await refused.answer()
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (429, "1", "close")
        assert why in answer.json["error"]["message"]
        await client.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert (await client.answer()).status == 200
        with closing(await client.again()) as other:
            await other.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert (await other.answer()).status == 200


async def test_a_proxy_that_is_trusted_may_have_any_number_of_connections() -> None:
    async with served(connections=Connections(9, 1, ["127.0.0.0/8"])) as client:
        with closing(await client.again()) as other:
            await other.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert (await other.answer()).status == 200


@pytest.mark.parametrize("head", [POST + b"content-length: 9\r\n\r\n", CHUNKED])
@pytest.mark.parametrize("part", [b"", b"1\r\n{"])
async def test_a_body_that_pauses_is_refused_and_the_connection_ends(head: bytes, part: bytes) -> None:
    async with served(QUICK) as client:
        await client.send(head + part)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_a_body_that_goes_on_is_waited_for() -> None:
    patient = Bounds(body_idle_s=2.0)
    async with served(patient) as client:
        await client.send(POST + b"connection: close\r\ncontent-length: 12\r\n\r\n")
        for part in (b'{"a"', b': "b', b'cd"}'):
            await asyncio.sleep(0.4 * patient.body_idle_s)  # all three take longer than a pause may
            await client.send(part)
        assert (await client.answer()).json["body"] == '{"a": "bcd"}'


async def test_a_body_that_nobody_reads_has_a_moment_to_end() -> None:
    async with served(QUICK) as client:
        await client.send(b"GET / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
        dripping = asyncio.create_task(_drip(client))
        assert (await client.answer()).status == 200
        dripping.cancel()


async def _drip(client: Client) -> None:
    while True:
        await client.send(b" ")
        await asyncio.sleep(QUICK.body_idle_s / 4)


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"1;x=", id="extension"),
        pytest.param(b"1\r\n \r\n0\r\nx: ", id="trailer"),
    ],
)
async def test_what_frames_chunks_is_bounded_too(endless: bytes) -> None:
    async with served() as client:
        sending = asyncio.create_task(client.send(CHUNKED + endless, *[b"a" * 1000] * 2000))
        answer = await client.answer()
        await sending
        assert answer.status == 431


async def test_chunks_of_a_byte_each_are_taken_and_trailers_are_no_headers() -> None:
    text = b'"' + b"a" * 30_000 + b'"'
    async with served() as client:
        await client.send(CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        await client.send(*[b"1\r\n%c\r\n" % byte for byte in text], b"0\r\nauthorization: Bearer x\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.json["body"]) == (200, text.decode())
        assert "authorization" not in answer.json["headers"]


async def test_trailers_that_come_with_the_headers_are_no_headers() -> None:
    async with served() as client:
        head = CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        await client.send(head + b"2\r\n{}\r\n0\r\nauthorization: Bearer x\r\n\r\n")
        assert "authorization" not in (await client.answer()).json["headers"]


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", CHUNKED + b"zz\r\n"])
async def test_what_is_not_http_is_refused_with_an_error_object(data: bytes) -> None:
    async with served() as client:
        await client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
        assert answer.json["error"]["message"]


async def test_an_answer_under_way_is_finished_before_the_connection_of_a_bad_request_ends() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await tell(scope, receive, send)

    async with served(app=slow) as client:
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + b"no request\r\n\r\n")
        go_on.set()
        assert (await client.answer()).status == 200
