"""Server-sent events out of pieces of bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from outrider_client.sse import Parser, ServerEvent

_BYTES = (
    b": hello\n\ndata: {}\nid: r:1\nretry: 1000\n\n"
    b"data:a\r\ndata: b\r\n\r\nid: r:2\n\nevent: x\ndata: last\n\ndata: cut"
)
_EVENTS = [ServerEvent(b"{}", "r:1", 1000), ServerEvent(b"a\nb"), ServerEvent(b"last")]


@given(st.lists(st.integers(0, len(_BYTES)), max_size=8))
def test_events_do_not_depend_on_how_the_bytes_were_cut(cuts: list[int]) -> None:
    parser, places = Parser(), [0, *sorted(cuts), len(_BYTES)]
    pieces = [_BYTES[start:end] for start, end in pairwise(places)]
    assert [event for piece in pieces for event in parser.feed(piece)] == _EVENTS
