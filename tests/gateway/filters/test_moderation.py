"""Moderation, beside a service of the shape of OpenAI's moderation API over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from outrider.gateway.filters.chain import Chain, Setup
from outrider.gateway.filters.filter import Passed
from outrider.gateway.filters.moderation import Moderation
from outrider.mesh.errors import ConfigError, Unavailable

from tests.gateway.filters.reading import chain, passed_by

WINDOW, OVERLAP = 8, 3


class Moderator(ThreadingHTTPServer):
    """Flags texts that hold `bad`; keeps what it was asked, with which headers, over how many connections."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[Any] = set()
        self.answer: bytes | None = None
        self.status = 200
        self.halt = threading.Event()
        self.halt.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/moderations"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Moderator

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.connections.add(self.client_address)
        self.server.halt.wait(30)
        bad = "bad" in asked["input"]
        result = {"flagged": bad, "categories": {"violence": bad, "hate": False}, "category_scores": {}}
        data = self.server.answer or json.dumps({"id": "m", "model": "m", "results": [result]}).encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        with suppress(BrokenPipeError):  # a client that did not wait
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def moderator() -> Iterator[Moderator]:
    made = Moderator()
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.halt.set()
    made.shutdown()
    thread.join()
    made.server_close()


Make = Callable[..., Moderation]


@pytest.fixture
async def make(moderator: Moderator) -> AsyncIterator[Make]:
    """Makes the plug-in with further options, and closes it in the end."""
    made: list[Moderation] = []

    def moderation(**more: Any) -> Moderation:
        made.append(Moderation({"url": moderator.url, "window": WINDOW, "overlap": OVERLAP} | more))
        return made[-1]

    yield moderation
    for each in made:
        await each.close()


@pytest.mark.parametrize("size", [1, 3, 20])
async def test_windows_depend_on_the_text_alone_and_share_a_connection(
    moderator: Moderator, make: Make, size: int
) -> None:
    text = "0123456789abcdefghij"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert await passed_by(chain(make(model="judge")), pieces) == Passed(text)
    windows = ["01234567", "56789abcdef", "defghij"]
    assert moderator.asked == [{"input": window, "model": "judge"} for window in windows]
    assert len(moderator.connections) == 1


async def test_a_flagged_text_ends_the_answer_even_where_it_straddles_windows(make: Make) -> None:
    assert await passed_by(chain(make()), [*"so is ba", *"d, and more"]) == Passed("so is ba", ended="f0.violence")
    assert await passed_by(chain(make()), ["is bad"]) == Passed(ended="f0.violence")


async def test_only_the_named_categories_count(make: Make) -> None:
    text = "it is bad"
    assert await passed_by(chain(make(categories=["hate"])), [text]) == Passed(text)
    assert (await passed_by(chain(make(categories=["hate", "violence"])), [text])).ended == "f0.violence"


@pytest.mark.parametrize(
    ("status", "answer"), [(500, None), (200, b"<html>"), (200, b'{"results": []}'), (200, b'{"flagged": false}')]
)
async def test_a_service_that_does_not_answer_as_it_must_fails_the_answer_or_passes_it(
    moderator: Moderator, make: Make, status: int, answer: bytes | None
) -> None:
    moderator.status, moderator.answer = status, answer
    with pytest.raises(Unavailable, match="a text could not be filtered"):
        await passed_by(chain(make()), ["it is bad"])
    assert await passed_by(chain(make(), fail_open=True), ["it is bad"]) == Passed("it is bad")


async def test_a_service_that_is_late_or_away_fails_the_answer(moderator: Moderator, make: Make) -> None:
    moderator.halt.clear()
    with pytest.raises(Unavailable):
        await passed_by(Chain([Setup("late", make(), 0.05, fail_open=False)]), ["it is good"])
    moderator.halt.set()
    with pytest.raises(Unavailable):
        await passed_by(chain(make(url="http://127.0.0.1:9/")), ["it is good"])


async def test_the_key_comes_from_a_variable(moderator: Moderator, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="MODERATION_KEY"):
        make(key_variable="MODERATION_KEY")
    monkeypatch.setenv("MODERATION_KEY", "sesame")
    await passed_by(chain(make(key_variable="MODERATION_KEY")), ["a"])
    assert moderator.headers[0]["authorization"] == "Bearer sesame"
