"""Checks JSON from clients: its depth is bounded, and no parameter is given twice."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
from outrider.mesh.errors import InvalidRequest

DEPTH = 100
"""Most levels of arrays and objects. Later parsers, such as serde's, accept between 128 and a thousand levels."""

_SHOWN = 100
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Maps opening brackets to +1 and closing brackets to -1, as signed bytes."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def require_plain(data: bytes, name: str = "the body") -> None:
    """Raises `InvalidRequest` if ``data`` nests too deep, or is an object with two members of one name.

    Members of inner objects are not checked: that would take longer than parsing. Data that is not JSON passes.
    """
    if data.count(b"[") + data.count(b"{") > DEPTH and _deep(data):
        raise InvalidRequest(f"{name} nests deeper than {DEPTH} levels of arrays and objects, the most allowed")
    if (name_twice := _MEMBER_NAMES.first_duplicate(data)) is not None:
        raise InvalidRequest(f"{name_twice[:_SHOWN]} is given twice: give it once", param=name_twice[:_SHOWN])


def _deep(data: bytes) -> bool:
    """Whether brackets outside strings nest deeper than `DEPTH`."""
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    outside = b"".join(unescaped.translate(_STEPS, _OTHERS).split(b'"')[::2])
    return max(accumulate(memoryview(outside).cast("b")), default=0) > DEPTH


class _Name(str):
    """A member's name."""


class _MemberNames:
    """Reads the names of an object's members, repeated names included, which a dictionary would drop."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._decode = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=self._note_name).decode

    def first_duplicate(self, data: bytes) -> str | None:
        """The first repeated name; None if there is none, or ``data`` is not an object."""
        self._names.clear()
        try:
            members = self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if len(members) == len(self._names):
            return None
        return next(name for place, name in enumerate(self._names) if name in self._names[:place])

    def _note_name(self, kind: type, name: Any) -> _Name:
        self._names.append(name)
        return _Name(name)


_MEMBER_NAMES = _MemberNames()
