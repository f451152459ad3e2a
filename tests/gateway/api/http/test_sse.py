"""Events on the wire."""

from __future__ import annotations

import json

from outrider.gateway.api.http.sse import done, event, with_retry
from outrider.gateway.errors import error_answer
from outrider.mesh.errors import InvalidRequest


def test_an_event_is_one_line_even_for_clients_that_know_other_line_ends() -> None:
    text = "a\u2028b\u2029c\x85d\ne\r\x1cf“é”"
    data = event(error_answer(InvalidRequest(text)), "r:5")
    assert data.endswith(b"\nid: r:5\n\n")
    assert len(data.decode().splitlines()) == 3
    assert json.loads(data.splitlines()[0].removeprefix(b"data: "))["error"]["message"] == text


def test_an_event_may_tell_when_to_come_back() -> None:
    assert with_retry(done("r:done"), 1000) == b"data: [DONE]\nid: r:done\nretry: 1000\n\n"
