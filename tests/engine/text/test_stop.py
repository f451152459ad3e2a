"""Stop strings found in pieces, against a search of the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.text import StopMatcher, TextError

_words = st.text(alphabet="ab\né", min_size=1, max_size=4)


@pytest.mark.parametrize("pieces", [["abc", "d"], ["a", "b", "c", "d"]])
def test_the_text_may_keep_the_stop_string(pieces: list[str]) -> None:
    matcher = StopMatcher(["bc", "d"], keeps=True)
    assert _push_all(matcher, pieces) == ("abc", True)
    assert matcher.found == "bc"


def _before_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


def _push_all(matcher: StopMatcher, pieces: list[str]) -> tuple[str, bool]:
    emitted = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        emitted += text
        if stopped:
            return emitted, True
    return emitted + matcher.flush(), False


@settings(max_examples=500, deadline=None)
@given(pieces=st.lists(st.text(alphabet="ab\né", max_size=5), max_size=12), stops=st.lists(_words, max_size=4))
def test_the_first_stop_is_found_however_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    assert _push_all(StopMatcher(stops), pieces) == _before_first_stop("".join(pieces), stops)


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.text(alphabet="ab", max_size=3), max_size=12), stops=st.lists(_words, min_size=1))
def test_no_more_is_held_back_than_may_begin_a_stop_string(pieces: list[str], stops: list[str]) -> None:
    matcher, text, emitted = StopMatcher(stops), "", ""
    for piece in pieces:
        new, stopped = matcher.push(piece)
        text, emitted = text + piece, emitted + new
        if stopped:
            return
        held = text[len(emitted) :]
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_of_stop_strings_that_end_together_the_longest_counts() -> None:
    matcher = StopMatcher(["b", "ab"])
    assert matcher.push("xab!") == ("x", True)
    assert matcher.found == "ab"


def test_the_stop_string_that_is_complete_first_counts() -> None:
    matcher = StopMatcher(["abc", "b"])
    assert matcher.push("xabc") == ("xa", True)
    assert matcher.found == "b"


def test_without_stop_strings_everything_passes() -> None:
    matcher = StopMatcher([])
    assert matcher.push("text") == ("text", False)
    assert matcher.found is None


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(TextError, match="may not be empty"):
        StopMatcher(["a", ""])
