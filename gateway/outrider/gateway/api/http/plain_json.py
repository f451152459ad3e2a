"""Checks JSON from clients: its depth and its size are bounded, and no parameter is given twice."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import msgspec
from outrider.mesh.errors import InvalidRequest

DEPTH = 100
"""Most levels of arrays and objects. Later parsers, such as serde's, accept between 128 and a thousand levels."""
PARAMETERS = 256
"""Most members of the outermost object."""
ENTRIES = 50_000
"""Most arrays, objects and members of objects together: reading each takes about a microsecond."""

VALUES = 1_100_000
"""Most values of arrays and members of objects together: as many as the longest prompt has token ids, and some."""
STRINGS = 200_000
"""Most strings, names of members included."""

_SHOWN = 100
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Maps opening brackets to +1 and closing brackets to -1, as signed bytes."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b'[]{}:,"')


def require_plain(data: bytes, name: str = "the body") -> None:
    """Raises `InvalidRequest` if ``data`` nests too deep, has too many entries, or is an object with a repeated name.

    Names of inner objects are not checked: that would take longer than parsing. Data that is not JSON passes.
    """
    opened, quotes = data.count(b"[") + data.count(b"{"), data.count(b'"')
    many = opened + data.count(b":") > ENTRIES or data.count(b",") > VALUES or quotes > 2 * STRINGS
    if opened > DEPTH or many:
        _require_shape(_outside_strings(data, name), name)
    if (name_twice := _MEMBER_NAMES.first_duplicate(data, name)) is not None:
        raise InvalidRequest(f"{name_twice[:_SHOWN]} is given twice: give it once", param=name_twice[:_SHOWN])


def read_plain(text: str, name: str) -> Any:
    """The JSON in ``text``; raises as `require_plain`, and `InvalidRequest` for a ``text`` that is not JSON."""
    require_plain(text.encode(), name)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name} is not valid JSON: {error}", param=name) from None


def _outside_strings(data: bytes, name: str) -> bytes:
    """The brackets, colons and commas outside strings; raises `InvalidRequest` for too many strings."""
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if unescaped.count(b'"') > 2 * STRINGS:
        raise InvalidRequest(f"{name} has more than {STRINGS} strings, the most allowed")
    return b"".join(unescaped.translate(None, _OTHERS).split(b'"')[::2])


def _require_shape(outside: bytes, name: str) -> None:
    """Raises `InvalidRequest` for too many entries or values, or for brackets that nest too deep."""
    steps = outside.translate(_STEPS, b":,")[: 2 * ENTRIES]
    if max(accumulate(memoryview(steps).cast("b")), default=0) > DEPTH:
        raise InvalidRequest(f"{name} nests deeper than {DEPTH} levels of arrays and objects, the most allowed")
    if outside.count(b"[") + outside.count(b"{") + outside.count(b":") > ENTRIES:
        raise InvalidRequest(f"{name} has more than {ENTRIES} arrays, objects and members of objects, the most allowed")
    if outside.count(b",") > VALUES:
        raise InvalidRequest(f"{name} has more than {VALUES} values, the most allowed")


class _Name(str):
    """A member's name."""


class _MemberNames:
    """Reads the names of an object's members, repeated names included, which a dictionary would drop."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._decode = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=self._note_name).decode

    def first_duplicate(self, data: bytes, name: str) -> str | None:
        """The first repeated name; None if there is none, or ``data`` is not an object.

        Raises `InvalidRequest` for more than `PARAMETERS` members.
        """
        self._names.clear()
        try:
            members = self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            if len(self._names) <= PARAMETERS:
                return None
            raise InvalidRequest(f"{name} has more than {PARAMETERS} parameters, the most allowed") from None
        if len(members) == len(self._names):
            return None
        return next(name for place, name in enumerate(self._names) if name in self._names[:place])

    def _note_name(self, kind: type, name: Any) -> _Name:
        self._names.append(name)
        if len(self._names) > PARAMETERS:
            raise ValueError
        return _Name(name)


_MEMBER_NAMES = _MemberNames()
