from __future__ import annotations

import asyncio
import json

import pytest
from outrider.measure.load.client import RequestError, complete

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1},
}
EVENTS = [
    {"choices": [{"text": "de"}], "usage": None},
    {"choices": [{"text": "f"}], "outrider": {"steps": 2, "seed": 1}},
    {"choices": [], "usage": USAGE},
]


def sse(events) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed


async def ask(answer: bytes):
    """The result of `complete` with a server that always sends ``answer``."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return await complete(f"http://127.0.0.1:{port}", {"prompt": "def"})


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
async def test_counts_come_from_usage_however_the_stream_is_cut(size):
    reply = await ask(chunked(sse(EVENTS), size))
    assert len(reply.arrivals) == 2
    assert (reply.completion_tokens, reply.steps, reply.cached_tokens) == (5, 2, 2)
    assert (reply.accepted_tokens, reply.rejected_tokens) == (3, 1)


async def test_the_role_that_a_chat_begins_with_is_no_token():
    chat = [{"choices": [{"delta": delta}]} for delta in ({"role": "assistant", "content": ""}, {"content": "a"})]
    reply = await ask(chunked(sse([*chat, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, EVENTS[-1]]), 64))
    assert len(reply.arrivals) == 2


async def test_an_error_status_is_an_error_with_the_gateways_message():
    body = b'{"error": {"message": "no such model"}}'
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    with pytest.raises(RequestError, match="404 Not Found: no such model"):
        await ask(head + body)


async def test_an_error_in_the_stream_is_an_error():
    with pytest.raises(RequestError, match="gone"):
        await ask(chunked(sse([EVENTS[0], {"error": {"message": "gone"}}]), 64))


async def test_a_stream_without_usage_is_an_error():
    with pytest.raises(RequestError, match="without tokens or usage"):
        await ask(chunked(sse(EVENTS[:2]), 64))


async def test_a_stream_that_breaks_off_is_an_error():
    with pytest.raises(RequestError, match="no complete answer"):
        await ask(chunked(sse(EVENTS), 64)[:-20])


async def test_an_unreachable_server_is_an_error(unused_tcp_port):
    with pytest.raises(RequestError, match="no complete answer"):
        await complete(f"http://127.0.0.1:{unused_tcp_port}", {})
