"""JSON as it is taken from clients: of bounded depth, and without a parameter that is given twice."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
from outrider.mesh.errors import InvalidRequest

DEPTH = 100
"""Arrays and objects inside one another. Readers further in, serde's among them, take 128 and less than a thousand."""

_SHOWN = 100
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""A level more, or less, as signed bytes."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def require_plain(data: bytes, name: str = "the body") -> None:
    """Raises `InvalidRequest` where ``data``, if it is JSON, is too deep, or an object with two members of one name.

    Objects inside it are not looked through for names: that would take longer than reading all of it.
    """
    if data.count(b"[") + data.count(b"{") > DEPTH and _deep(data):
        raise InvalidRequest(f"{name} nests deeper than {DEPTH} levels of arrays and objects, the most allowed")
    if (twice := _NAMES.twice(data)) is not None:
        raise InvalidRequest(f"{twice[:_SHOWN]} is given twice: give it once", param=twice[:_SHOWN])


def _deep(data: bytes) -> bool:
    """Whether brackets outside strings stand deeper in one another than `DEPTH`."""
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = b"".join(unescaped.translate(_STEPS, _OTHERS).split(b'"')[::2])
    return max(accumulate(memoryview(outside).cast("b")), default=0) > DEPTH


class _Name(str):
    """A member's name."""


class _Names:
    """Reads the names of an object's members as often as they are there; a dictionary would tell each once."""

    def __init__(self) -> None:
        self._heard: list[str] = []
        self._decode = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=self._hear).decode

    def twice(self, data: bytes) -> str | None:
        """The first name that is there again, if any; None for what is no object."""
        self._heard.clear()
        try:
            members = self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if len(members) == len(self._heard):
            return None
        return next(name for place, name in enumerate(self._heard) if name in self._heard[:place])

    def _hear(self, kind: type, name: Any) -> _Name:
        self._heard.append(name)
        return _Name(name)


_NAMES = _Names()
