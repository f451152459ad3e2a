"""Streams that tell of life in silence, and errors that come before the first event, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
from openai._streaming import SSEDecoder
from outrider.gateway.api.http.sse import COMMENT, EventStream
from outrider.gateway.api.ollama.routes import LineStream
from outrider.gateway.settings import GatewaySettings
from outrider.mesh.errors import OutriderError, Overloaded

from tests import virtual_time

EVENT = b'data: {"text":"a"}\nid: r:1\n\n'
REFUSAL = b"data: refused\n\n"
PING = b"event: ping\ndata: {}\n\n"


class Told:
    """What a client of a stream is told, and when."""

    def __init__(self) -> None:
        self.parts: list[tuple[float, bytes]] = []
        self.status = self.ends = 0

    async def send(self, message: Any) -> None:
        """Takes a message of ASGI."""
        self.status = message.get("status", self.status)
        if body := message.get("body"):
            self.parts.append((asyncio.get_running_loop().time(), body))

    async def end(self, what: object) -> None:
        """The end of what was started."""
        self.ends += 1


async def started_after(seconds: float, error: OutriderError | None = None) -> list[float]:
    """Pauses before events."""
    await asyncio.sleep(seconds)
    if error is not None:
        raise error
    return [1.0, 25.0, 9.0, 9.0]


async def paused(pauses: list[float]) -> AsyncGenerator[bytes, None]:
    for pause in pauses:
        await asyncio.sleep(pause)
        yield EVENT


def told(
    starting: Callable[[], Coroutine[Any, Any, list[float]]],
    keepalive_s: float = 10.0,
    kind: Any = EventStream,
    **more: Any,
) -> Told:
    """What a stream tells."""
    told = Told()

    async def main() -> None:
        silent = asyncio.Event()

        async def receive() -> Any:
            await silent.wait()

        settings = GatewaySettings(keepalive_s=keepalive_s)
        stream = kind(starting(), paused, told.end, lambda error: REFUSAL, settings, **more)
        await stream({}, receive, told.send)

    virtual_time.run(main())
    return told


def test_every_ten_seconds_of_silence_have_a_comment_and_no_others() -> None:
    events = [(1, EVENT), (11, COMMENT), (21, COMMENT), (26, EVENT), (35, EVENT), (44, EVENT)]
    assert told(lambda: started_after(0)).parts == events
    assert told(lambda: started_after(0), 0).parts == [part for part in events if part[1] != COMMENT]


def test_an_api_tells_of_life_in_its_own_words_behind_its_first_event() -> None:
    parts = told(lambda: started_after(11), alive=PING).parts
    assert parts[:4] == [(10, COMMENT), (12, EVENT), (22, PING), (32, PING)]


def test_lines_of_json_have_no_comments_so_life_is_a_line_from_the_beginning() -> None:
    line = b'{"done":false}\n'
    parts = told(lambda: started_after(11), kind=LineStream, alive=line).parts
    assert parts[:4] == [(10, line), (12, EVENT), (22, line), (32, line)]


def test_an_early_error_has_a_status_of_its_own() -> None:
    with pytest.raises(Overloaded):
        told(lambda: started_after(9, Overloaded("full")))


def test_a_late_error_is_an_event() -> None:
    late = told(lambda: started_after(11, Overloaded("full")))
    assert (late.status, late.parts, late.ends) == (200, [(10, COMMENT), (11, REFUSAL)], 0)
    assert told(lambda: started_after(11)).ends == 1


def test_a_client_that_keeps_ids_sees_no_event_in_a_comment() -> None:
    stream = EVENT + COMMENT + COMMENT + EVENT
    assert [each.data for each in SSEDecoder().iter_bytes(iter([stream]))] == ['{"text":"a"}'] * 2
