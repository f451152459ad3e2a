"""A proxy that answers in place of a gateway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from outrider_client import AsyncClient, Client, RateLimitError, UnreadableAnswerError

PAGE = b"<html>Please log in</html>"


class Proxy(BaseHTTPRequestHandler):
    """Always gives the same answers: 429 with ``Retry-After`` for ``/v1/models``, a page or an event for others."""

    answers = 0

    def do_GET(self) -> None:
        type(self).answers += 1
        self._say(429, "text/html", {"retry-after": "3600"})

    def do_POST(self) -> None:
        type(self).answers += 1
        body = self.rfile.read(int(self.headers["content-length"]))
        events = b"no event of ours" in body
        self._say(200, "text/event-stream" if events else "text/html", {}, b"data: hello\n\n" if events else PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        pass

    def _say(self, status: int, kind: str, headers: dict[str, str], body: bytes = PAGE) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def url() -> Iterator[str]:
    Proxy.answers = 0
    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_proxy_page_is_an_error_and_not_retried(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(UnreadableAnswerError, match=r"not a gateway's.*<html>Please log in"):
            client.complete("a")
        with pytest.raises(UnreadableAnswerError, match="<html>Please log in"):
            list(client.stream("a"))
        with pytest.raises(UnreadableAnswerError, match="hello"):
            list(client.stream("no event of ours"))
    assert Proxy.answers == 3


async def test_a_proxy_page_is_an_error_for_asyncio_too(url: str) -> None:
    async with AsyncClient(url) as client:
        with pytest.raises(UnreadableAnswerError, match="<html>Please log in"):
            await client.chat([])
        with pytest.raises(UnreadableAnswerError, match="<html>Please log in"):
            await anext(aiter(client.stream("a")))
        with pytest.raises(UnreadableAnswerError, match="hello"):
            await anext(aiter(client.stream("no event of ours")))
    assert Proxy.answers == 3


async def test_an_hour_is_not_waited_for(url: str) -> None:
    with Client(url) as client, pytest.raises(RateLimitError):
        client.models()
    async with AsyncClient(url, retry_after_s=3599) as waiting:
        with pytest.raises(RateLimitError) as raised:
            await waiting.models()
    assert (raised.value.retry_after, Proxy.answers) == (3600.0, 2)


async def test_requests_go_through_the_client_of_httpx_that_is_given(url: str) -> None:
    sent: list[httpx.Request] = []

    async def note(request: httpx.Request) -> None:
        sent.append(request)

    http = httpx.AsyncClient(event_hooks={"request": [note]})
    async with AsyncClient(url, api_key="key", timeout=7, http_client=http) as client:
        with pytest.raises(RateLimitError):
            await client.models()
    assert [request.headers["authorization"] for request in sent] == ["Bearer key"]
    assert sent[0].extensions["timeout"]["read"] == 7
    assert http.is_closed
