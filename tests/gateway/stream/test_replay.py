"""Replays of arbitrary logs of frames."""

from __future__ import annotations

import msgspec
from outrider.gateway.errors import FatalRequest
from outrider.gateway.stream.replay import replay
from outrider.mesh.errors import Cancelled, Internal, InvalidRequest
from outrider.wire.frames import Finish, Frame, Usage


def _frame(first: int, count: int, finish: Finish | None = None, error: str | None = None) -> Frame:
    tokens = list(range(first, first + count))
    usage = Usage(3, first + count) if finish in (Finish.STOP, Finish.LENGTH) else None
    return Frame("r", first, tokens, [str(token) for token in tokens], [""] * count, finish, usage, error)


def _tokens(*log: Frame) -> list[list[int]]:
    return [frame.tokens for frame in replay(log).frames]


def test_frames_are_told_once_and_up_to_the_end() -> None:
    told = replay([_frame(0, 2), _frame(0, 2), _frame(1, 3), _frame(4, 1, Finish.STOP), _frame(5, 1)])
    assert [frame.tokens for frame in told.frames] == [[0, 1], [2, 3], [4]]
    assert (told.failure, told.given_up) == (None, False)


def test_what_a_verifier_gave_up_may_have_gone_on_at_another() -> None:
    given_up = _frame(2, 0, Finish.CANCELLED)
    assert replay([_frame(0, 2), given_up]).given_up
    assert not replay([_frame(0, 2), given_up, _frame(2, 1)]).given_up


def test_a_gap_is_not_passed_over() -> None:
    told = replay([_frame(0, 2), _frame(3, 1), _frame(4, 1, Finish.LENGTH)])
    assert _tokens(_frame(0, 2), _frame(3, 1)) == [[0, 1]]
    assert told.given_up
    assert told.frames[-1].finish is None


def test_failures_that_are_meant_for_all_end_it() -> None:
    ends = [
        (_frame(9, 0, Finish.CANCELLED, "the stream was cancelled"), Cancelled),
        (msgspec.structs.replace(_frame(2, 0, Finish.ERROR, "why"), verifier="v"), Internal),
        (_frame(0, 0, Finish.ERROR, "verifiers died"), FatalRequest),
        (_frame(2, 0, Finish.REFUSED, "no token is left"), InvalidRequest),
    ]
    for end, kind in ends:
        told = replay([_frame(0, 2), end, _frame(2, 1, Finish.STOP)])
        assert isinstance(told.failure, kind)
        assert [frame.tokens for frame in told.frames] == [[0, 1]]
