"""Ids and frames as bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.wire.frames import Finish, Frame, Usage, decode_frame, encode_frame
from outrider.wire.ids import pack_floats, pack_ids, unpack_floats, unpack_ids


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_ids_come_back(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_floats_come_back(values: list[float]) -> None:
    assert unpack_floats(pack_floats(values)) == values


def test_ids_are_little_endian_int32() -> None:
    assert pack_ids([1, -2]) == b"\x01\x00\x00\x00\xfe\xff\xff\xff"


def test_half_an_id_and_one_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        unpack_ids(b"12345")
    with pytest.raises(OverflowError):
        pack_ids([2**31])


def test_frames_come_back_and_are_plain_arrays() -> None:
    frame = Frame("r", 3, [5, 6], ["a", ""], ["model", ""], Finish.STOP, Usage(1, 5, steps=2))
    assert decode_frame(encode_frame(frame)) == frame
    assert msgspec.msgpack.decode(encode_frame(frame))[:4] == ["r", 3, [5, 6], ["a", ""]]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_frame(msgspec.msgpack.encode([1, 2]))
