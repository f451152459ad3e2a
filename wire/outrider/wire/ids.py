"""Token ids as bytes: little-endian int32, the form in which the protocols carry them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

_SWAP = sys.byteorder == "big"


def pack_ids(ids: Sequence[int]) -> bytes:
    """Bytes of ``ids``; `OverflowError` for one outside int32."""
    return _little_endian(array("i", ids)).tobytes()


def unpack_ids(data: bytes) -> list[int]:
    """Ids in ``data``; `ValueError` when its length is no multiple of 4."""
    return _unpack("i", data)


def pack_floats(values: Sequence[float]) -> bytes:
    """Little-endian float32 bytes of ``values``."""
    return _little_endian(array("f", values)).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    """Float32 values in ``data``; `ValueError` when its length is no multiple of 4."""
    return _unpack("f", data)


def _unpack(code: str, data: bytes) -> list[float]:
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes are no whole number of 4-byte values")
    values = array(code)
    values.frombytes(data)
    return _little_endian(values).tolist()


def _little_endian(values: array[float]) -> array[float]:
    if _SWAP:
        values.byteswap()
    return values
