"""Token ids as bytes: little-endian int32, the form in which the protocols carry them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T", int, float)

_SWAP = sys.byteorder == "big"


def pack_ids(ids: Sequence[int]) -> bytes:
    """Bytes of ``ids``; `OverflowError` for one outside int32."""
    return _swapped(array("i", ids)).tobytes()


def unpack_ids(data: bytes) -> list[int]:
    """Ids in ``data``; `ValueError` unless its length is a multiple of 4."""
    return _unpacked(array("i"), data).tolist()


def pack_floats(values: Sequence[float]) -> bytes:
    """Little-endian float32 bytes of ``values``."""
    return _swapped(array("f", values)).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    """Float32 values in ``data``; `ValueError` unless its length is a multiple of 4."""
    return _unpacked(array("f"), data).tolist()


def _unpacked(values: array[T], data: bytes) -> array[T]:
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes are no whole number of 4-byte values")
    values.frombytes(data)
    return _swapped(values)


def _swapped(values: array[T]) -> array[T]:
    if _SWAP:
        values.byteswap()
    return values
