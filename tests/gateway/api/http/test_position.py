"""Positions as ids of events, written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.gateway.api.http.sse import Position, Tail
from outrider.mesh.errors import InvalidRequest

_choices = st.lists(st.tuples(st.integers(-99, 10**6), st.booleans()), min_size=1, max_size=5)


@given(_choices, st.integers(0, 3), st.sampled_from(Tail))
def test_what_an_id_says_is_read_again(choices: list[tuple[int, bool]], openings: int, tail: Tail) -> None:
    start = Position.start([-7] * len(choices))
    at = Position([place for place, _ in choices], [end for _, end in choices], openings, tail)
    read = start.read(at.text("r_1-2", 3), "r_1-2", 3)
    assert (read.tail, read.openings) == (tail, openings if tail is Tail.NONE else 3)
    if tail is Tail.NONE:
        assert read == (at if openings == 3 else Position(start.places, start.ended, openings))
    else:
        assert all(read.ended)


@pytest.mark.parametrize(
    "text", ["", "r", "r:", "r:1.", "r:1e.x", "r:o", "s:1", "r:1 ", "r:1.2", "r:e", "r:99999999999"]
)
def test_an_id_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Last-Event-ID"):
        Position.start([0]).read(text, "r", 0)
