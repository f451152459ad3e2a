"""Reads numbers and names of a mapped file, never beyond its end."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from outrider.engine.errors import ModelError

_NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE: changed pages, of which there are none, need no memory put aside


class Reader:
    """Reads a file from its beginning; `ModelError` where the file ends too early."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 0

    def skip(self, count: int) -> int:
        """Where the next ``count`` bytes begin."""
        start = self.at
        if count > len(self.data) - start:
            raise ModelError(f"{self.path} is cut off: its header has more than the file's {len(self.data)} bytes")
        self.at = start + count
        return start

    def number(self, code: str) -> int:
        """A number of a code of `struct`."""
        form = "<" + code
        start = self.skip(struct.calcsize(form))
        (number,) = struct.unpack_from(form, self.data, start)
        return int(number)

    def name(self, what: str, most: int) -> str:
        """A string of at most ``most`` bytes."""
        length = self.number("Q")
        if length > most:
            raise self.wrong(f"the name of a {what} has {length} bytes; at most {most} are allowed")
        start = self.skip(length)
        try:
            name = self.data[start : start + length].decode()
        except UnicodeDecodeError:
            raise self.wrong(f"the name of a {what} is not UTF-8") from None
        if not name or not name.isprintable():
            raise self.wrong(f"the name of a {what} is empty or has characters that cannot be printed")
        return name

    def wrong(self, why: str) -> ModelError:
        """The error for a header that is wrong."""
        return ModelError(f"{self.path} is not a sound GGUF file: {why}")


def mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, in a private map; `ModelError` if it is empty or cannot be read."""
    if not path.is_file():
        raise ModelError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise ModelError(f"{path} is empty; it must be a GGUF file")
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=protection)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
