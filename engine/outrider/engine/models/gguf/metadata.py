"""Typed reading of a GGUF file's metadata."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from outrider.engine.errors import ModelError

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, TEXT, LIST, UINT64, INT64, FLOAT64 = range(13)
"""Numbers of the kinds of values."""
CODES = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "B",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}
"""Quants of `struct` and `array` for kinds of a fixed size."""
LENGTH = struct.Struct("<Q")
"""The length before a string."""
_MOST = 1 << 24
_LEAST = 1e-20
_MOST_SHOWN = 60
NONE = frozenset({-1, (1 << 32) - 1, (1 << 64) - 1})
"""Numbers that converters write for none."""


class Entry(NamedTuple):
    """Where a value lies in the file.

    Attributes:
        kind: kind of the value, or of each element.
        start: its first byte.
        length: bytes of a string, or elements of a list.
        is_list: whether the value is a list.
    """

    kind: int
    start: int
    length: int
    is_list: bool


class Metadata:
    """The metadata of a file; values are decoded when they are asked for.

    Args:
        path: the file, for messages.
        data: its bytes.
        entries: places of values, all inside ``data``.
    """

    def __init__(self, path: Path, data: Any, entries: Mapping[str, Entry]) -> None:
        self.path = path
        self._data = data
        self._entries = entries

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def value(self, key: str) -> Any:
        """The value as a number, a truth value, a string, or a sequence of these; None if absent.

        Raises:
            ModelError: a string is not UTF-8.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not entry.is_list:
            return self._text(key, entry.start, entry.length) if entry.kind == TEXT else self._number(entry)
        return self._texts(key, entry) if entry.kind == TEXT else self._numbers(entry)

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number from 1 to 2**24; a list with one such number for each layer has to hold the same one."""
        value = default if key not in self else self.value(key)
        if isinstance(value, array) and len(set(value)) == 1:
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
            raise self.wrong(key, f"a whole number from 1 to {_MOST}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A number from 1e-20 to 1e20."""
        value = default if key not in self else self.value(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not _LEAST <= value <= 1 / _LEAST:
            raise self.wrong(key, f"a number from {_LEAST:g} to {1 / _LEAST:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = default if key not in self else self.value(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = default if key not in self else self.value(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_list or entry.kind != TEXT:
            raise self.wrong(key, "a list of strings")
        return self._texts(key, entry)

    def numbers(self, key: str, kinds: Sequence[int]) -> array[Any]:
        """A list of numbers of one of ``kinds``."""
        entry = self._entries.get(key)
        if entry is None or not entry.is_list or entry.kind not in kinds:
            raise self.wrong(key, "a list of numbers")
        return self._numbers(entry)

    def wrong(self, key: str, allowed: str) -> ModelError:
        """The error for a value that is not ``allowed``."""
        entry = self._entries.get(key)
        if entry is None:
            return ModelError(f"{self.path}: {key} is missing; it must be {allowed}")
        shown = f"a list of {entry.length}" if entry.is_list else _shown(self.value(key))
        return ModelError(f"{self.path}: {key} is {shown}; it must be {allowed}")

    def _number(self, entry: Entry) -> Any:
        (number,) = struct.unpack_from("<" + CODES[entry.kind], self._data, entry.start)
        return bool(number) if entry.kind == BOOL else number

    def _numbers(self, entry: Entry) -> array[Any]:
        numbers = array(CODES[entry.kind])
        numbers.frombytes(self._data[entry.start : entry.start + entry.length * numbers.itemsize])
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def _text(self, key: str, start: int, length: int) -> str:
        try:
            return str(self._data[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"{self.path}: {key} holds a string that is not UTF-8") from None

    def _texts(self, key: str, entry: Entry) -> list[str]:
        texts, start = [], entry.start
        for _ in range(entry.length):
            (length,) = LENGTH.unpack_from(self._data, start)
            texts.append(self._text(key, start + LENGTH.size, length))
            start += LENGTH.size + length
        return texts


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
