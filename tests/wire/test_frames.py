"""Frames in batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from outrider.wire.frames import Frame, decode_tagged, encode_frame, encode_tagged


@given(st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, 60)), min_size=1), st.integers(1, 200))
def test_batches_hold_all_frames_in_order_and_are_bounded(frames: list[tuple[int, int]], most: int) -> None:
    given_frames = [(tag, Frame("r", 0, [], ["x" * size], [])) for tag, size in frames]
    batches = [*encode_tagged([(tag, encode_frame(frame)) for tag, frame in given_frames], most)]
    assert [tagged for batch in batches for tagged in decode_tagged(batch)] == given_frames
    for held in map(decode_tagged, batches):
        assert len(held) == 1 or sum(len(encode_frame(frame)) for _, frame in held) <= most
