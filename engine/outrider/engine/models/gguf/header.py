"""The header of a GGUF file: metadata, and the places of tensors, checked against the file's size.

The format is that of ggml's docs/gguf.md, versions 2 and 3, in little-endian order.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.layout import TENSOR_TYPES, TensorType
from outrider.engine.models.gguf.metadata import BOOL, CODES, LENGTH, LIST, TEXT, Entry, Metadata
from outrider.engine.models.gguf.reader import Reader, mapped

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_KEYS = _MOST_TENSORS = 1 << 16
_MOST_TEXTS = 1 << 22
_MOST_KEY_BYTES = 65535
_MOST_NAME_BYTES = 64
_MOST_DIMENSIONS = 4
_MOST_ELEMENTS = 1 << 48
_MOST_ALIGNMENT = 1 << 16


class TensorPlace(NamedTuple):
    """A tensor of a file.

    Attributes:
        type: how its elements are stored.
        shape: dimensions, the one whose elements are adjacent last.
        start: its first byte in the file.
        size: its bytes.
    """

    type: TensorType
    shape: tuple[int, ...]
    start: int
    size: int


class GgufFile(NamedTuple):
    """A mapped GGUF file.

    Attributes:
        path: the file.
        data: its bytes. The map is private: writing to it leaves the file as it is.
        metadata: its metadata.
        tensors: places of its tensors, by name.
    """

    path: Path
    data: mmap.mmap
    metadata: Metadata
    tensors: dict[str, TensorPlace]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Maps a file and reads its header.

        Raises:
            ModelError: the file cannot be read, or is no whole and sound GGUF file.
        """
        data = mapped(path)
        reader = Reader(path, data)
        tensor_count, key_count = _counts(reader)
        metadata = Metadata(path, data, _entries(reader, key_count))
        infos = _infos(reader, tensor_count)
        return cls(path, data, metadata, _places(reader, metadata, infos))


def is_gguf(path: Path) -> bool:
    """Whether a path names a GGUF file, by its ending or its first bytes: some stores name files by their hashes."""
    if path.suffix == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


class _Info(NamedTuple):
    type: TensorType
    shape: tuple[int, ...]
    offset: int


def _counts(reader: Reader) -> tuple[int, int]:
    if reader.data[:4] != _MAGIC:
        raise ModelError(f"{reader.path} is not a GGUF file: it does not begin with GGUF")
    reader.skip(4)
    version = reader.number("I")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, *_VERSIONS):
        raise ModelError(f"{reader.path} is a big-endian GGUF file; little-endian ones are allowed")
    if version not in _VERSIONS:
        raise ModelError(f"{reader.path} has version {version} of GGUF; versions 2 and 3 are allowed")
    tensors, keys = reader.number("Q"), reader.number("Q")
    for count, most, what in ((tensors, _MOST_TENSORS, "tensors"), (keys, _MOST_KEYS, "keys")):
        if count > most:
            raise reader.wrong(f"it claims {count} {what}; at most {most} are allowed")
    return tensors, keys


def _entries(reader: Reader, count: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for _ in range(count):
        key = reader.name("key", _MOST_KEY_BYTES)
        if key in entries:
            raise reader.wrong(f"the key {key} stands in it twice")
        entries[key] = _entry(reader, key)
    return entries


def _entry(reader: Reader, key: str) -> Entry:
    kind = reader.number("I")
    if kind == LIST:
        return _list(reader, key)
    if kind == TEXT:
        length = reader.number("Q")
        start = reader.skip(length)
        _check_text(reader, key, start, length)
        return Entry(TEXT, start, length, False)
    if kind not in CODES:
        raise reader.wrong(f"{key} has a value of the unknown kind {kind}")
    start = reader.skip(struct.calcsize("<" + CODES[kind]))
    if kind == BOOL and reader.data[start] > 1:
        raise reader.wrong(f"{key} is neither true nor false")
    return Entry(kind, start, 1, False)


def _check_text(reader: Reader, key: str, start: int, length: int) -> None:
    try:
        reader.data[start : start + length].decode()
    except UnicodeDecodeError:
        raise reader.wrong(f"{key} is not UTF-8") from None


def _list(reader: Reader, key: str) -> Entry:
    kind, length = reader.number("I"), reader.number("Q")
    if kind == LIST:
        raise reader.wrong(f"{key} is a list of lists; lists of numbers, truth values or strings are allowed")
    if kind == TEXT and length > _MOST_TEXTS:
        raise reader.wrong(f"{key} claims {length} strings; at most {_MOST_TEXTS} are allowed")
    if kind == TEXT:
        start = reader.at
        _skip_texts(reader, length)
        return Entry(TEXT, start, length, True)
    if kind not in CODES:
        raise reader.wrong(f"{key} is a list of the unknown kind {kind}")
    return Entry(kind, reader.skip(length * struct.calcsize("<" + CODES[kind])), length, True)


def _skip_texts(reader: Reader, count: int) -> None:
    """Skips strings. Vocabularies have hundreds of thousands of them, so this goes without `Reader.number`."""
    data, at, end, size = reader.data, reader.at, len(reader.data), LENGTH.size
    unpack = LENGTH.unpack_from
    for _ in range(min(count, (end - at) // size + 1)):
        at = at + size + unpack(data, at)[0] if at + size <= end else end + 1
        if at > end:
            break
    reader.skip(at - reader.at)


def _infos(reader: Reader, count: int) -> dict[str, _Info]:
    infos: dict[str, _Info] = {}
    for _ in range(count):
        name = reader.name("tensor", _MOST_NAME_BYTES)
        if name in infos:
            raise reader.wrong(f"the tensor {name} stands in it twice")
        infos[name] = _info(reader, name)
    return infos


def _info(reader: Reader, name: str) -> _Info:
    dimensions = reader.number("I")
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise reader.wrong(f"{name} has {dimensions} dimensions; 1 to {_MOST_DIMENSIONS} are allowed")
    shape = tuple(reader.number("Q") for _ in range(dimensions))[::-1]
    if not 1 <= math.prod(shape) <= _MOST_ELEMENTS:
        raise reader.wrong(f"{name} has the shape {list(shape)}, with no or too many elements")
    number = reader.number("I")
    if number not in TENSOR_TYPES:
        raise reader.wrong(f"{name} has the unknown type {number}")
    kind = TENSOR_TYPES[number]
    if shape[-1] % kind.elements:
        raise reader.wrong(f"{name} has rows of {shape[-1]} elements; {kind.name} has blocks of {kind.elements}")
    return _Info(kind, shape, reader.number("Q"))


def _places(reader: Reader, metadata: Metadata, infos: dict[str, _Info]) -> dict[str, TensorPlace]:
    alignment = metadata.count("general.alignment", 32)
    if alignment % 8 or alignment & (alignment - 1) or alignment > _MOST_ALIGNMENT:
        raise metadata.wrong("general.alignment", f"a power of two from 8 to {_MOST_ALIGNMENT}")
    first = -(-reader.at // alignment) * alignment
    places = {name: _place(reader, name, info, first, alignment) for name, info in infos.items()}
    end = 0
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        if place.start < end:
            raise reader.wrong(f"{name} overlaps the tensor before it")
        end = place.start + place.size
    return places


def _place(reader: Reader, name: str, info: _Info, first: int, alignment: int) -> TensorPlace:
    size = math.prod(info.shape) // info.type.elements * info.type.size
    if info.offset % alignment:
        raise reader.wrong(f"{name} is at offset {info.offset}, which is no multiple of {alignment}")
    if first + info.offset + size > len(reader.data):
        raise ModelError(
            f"{reader.path} is cut off: {name} ends at byte {first + info.offset + size} of {len(reader.data)}"
        )
    return TensorPlace(info.type, info.shape, first + info.offset, size)
