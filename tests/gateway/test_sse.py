"""Events on the wire."""

from __future__ import annotations

import json

from outrider.gateway.errors import error_answer
from outrider.gateway.sse import event
from outrider.mesh.errors import InvalidRequest


def test_an_event_is_one_line_even_for_clients_that_know_other_line_ends() -> None:
    text = "a\u2028b\u2029c\x85d\ne\r\x1cf“é”"
    data = event(error_answer(InvalidRequest(text)))
    assert data.endswith(b"\n\n")
    assert len(data.decode().splitlines()) == 2
    assert json.loads(data.removeprefix(b"data: "))["error"]["message"] == text
