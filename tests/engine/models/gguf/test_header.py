"""Headers of GGUF files: sound ones, and damaged or lying ones, which are refused with one sentence."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from outrider.engine.errors import ModelError
from outrider.engine.models.gguf.header import GgufFile
from outrider.engine.models.gguf.metadata import BOOL, FLOAT64, INT32, LIST, TEXT, UINT8, UINT16, UINT32

_HUGE = 1 << 63
_F32, _Q8_0 = 0, 8


def number(value: int, code: str = "Q") -> bytes:
    return struct.pack("<" + code, value)


def text(value: str | bytes) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    return number(len(encoded)) + encoded


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + number(kind, "I") + value


def info(name: str | bytes, shape: list[int], kind: int = _F32, offset: int = 0) -> bytes:
    sizes = b"".join(map(number, shape))
    return text(name) + number(len(shape), "I") + sizes + number(kind, "I") + number(offset)


def header(pairs: list[bytes], infos: list[bytes] | None = None, version: int = 3, count: int | None = None) -> bytes:
    infos = infos or []
    keys = len(pairs) if count is None else count
    return b"GGUF" + number(version, "I") + number(len(infos)) + number(keys) + b"".join([*pairs, *infos])


def padded(contents: bytes, data: bytes = b"", alignment: int = 32) -> bytes:
    return contents + bytes(-len(contents) % alignment) + data


def opened(path: Path, contents: bytes) -> GgufFile:
    (path / "model.gguf").write_bytes(contents)
    return GgufFile.open(path / "model.gguf")


def test_values_of_every_kind_are_read(tmp_path: Path) -> None:
    strings = number(TEXT, "I") + number(2) + text("a") + text("né")
    pairs = [
        pair("byte", UINT8, b"\x07"),
        pair("flag", BOOL, b"\x01"),
        pair("real", FLOAT64, struct.pack("<d", 0.25)),
        pair("word", TEXT, text("né")),
        pair("words", LIST, strings),
        pair("numbers", LIST, number(INT32, "I") + number(2) + struct.pack("<2i", -1, 5)),
    ]
    metadata = opened(tmp_path, header(pairs)).metadata
    assert [metadata.value(key) for key in ("byte", "flag", "real", "word", "none")] == [7, True, 0.25, "né", None]
    assert metadata.texts("words") == ["a", "né"]
    assert list(metadata.numbers("numbers", (INT32,))) == [-1, 5]


@pytest.mark.parametrize(("version", "alignment"), [(2, 32), (3, 32), (3, 64)])
def test_places_of_tensors_are_found(version: int, alignment: int, tmp_path: Path) -> None:
    pairs = [pair("general.alignment", UINT32, number(alignment, "I"))]
    infos = [info("a", [3, 2]), info("b", [32, 1], _Q8_0, alignment)]
    contents = padded(header(pairs, infos, version), bytes(range(alignment)) + bytes(34), alignment)
    file = opened(tmp_path, contents)
    assert (file.tensors["a"].shape, file.tensors["b"].shape) == ((2, 3), (1, 32))
    assert [(place.type.name, place.size) for place in file.tensors.values()] == [("F32", 24), ("Q8_0", 34)]
    first = file.tensors["a"].start
    assert file.data[first : first + 24] == bytes(range(24))
    assert file.tensors["b"].start == first + alignment


_LISTED = number(LIST, "I")
_ONE = [info("a", [8])]
_BAD = {
    "an empty file": (b"", "is empty; it must be a GGUF file"),
    "another format": (b"PK\x03\x04" + bytes(60), "is not a GGUF file: it does not begin with GGUF"),
    "the magic alone": (b"GGUF", "is cut off: its header has more than the file's 4 bytes"),
    "version 1": (header([], version=1), "has version 1 of GGUF; versions 2 and 3 are allowed"),
    "version 4": (header([], version=4), "has version 4 of GGUF; versions 2 and 3 are allowed"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is a big-endian GGUF file; little-endian ones are allowed"),
    "too many keys": (header([], count=_HUGE), f"it claims {_HUGE} keys; at most 65536 are allowed"),
    "more keys than there are": (header([], count=9), "is cut off: its header has more"),
    "a long key": (header([number(_HUGE)], count=1), f"the name of a key has {_HUGE} bytes; at most 65535 are allowed"),
    "a key that is not UTF-8": (header([pair(b"\xff", UINT8, b"1")]), "the name of a key is not UTF-8"),
    "a key of two lines": (header([pair("a\nb", UINT8, b"1")]), "the name of a key is empty or has characters that"),
    "a tensor without a name": (header([], [info("", [1])]), "the name of a tensor is empty or has characters that"),
    "a key twice": (header([pair("a", UINT8, b"1")] * 2), "the key a stands in it twice"),
    "an unknown kind": (header([pair("a", 13, b"1")]), "a has a value of the unknown kind 13"),
    "a strange truth": (header([pair("a", BOOL, b"\x02")]), "a is neither true nor false"),
    "a long string": (header([pair("a", TEXT, number(_HUGE))]), "is cut off: its header has more"),
    "a string that is not UTF-8": (header([pair("a", TEXT, text(b"\xc3"))]), "a is not UTF-8"),
    "a list of lists": (header([pair("a", LIST, _LISTED + number(1))]), "a is a list of lists; lists of numbers"),
    "a list of an unknown kind": (header([pair("a", LIST, number(77, "I") + number(1))]), "of the unknown kind 77"),
    "a long list": (header([pair("a", LIST, number(UINT16, "I") + number(_HUGE))]), "is cut off: its header has more"),
    "a long list of strings": (
        header([pair("a", LIST, number(TEXT, "I") + number(_HUGE))]),
        f"a claims {_HUGE} strings; at most 4194304 are allowed",
    ),
    "a list of long strings": (
        header([pair("a", LIST, number(TEXT, "I") + number(2) + text("b") + number(_HUGE))]),
        "is cut off: its header has more",
    ),
    "a list of fewer strings": (
        header([pair("a", LIST, number(TEXT, "I") + number(4_000_000) + text("b"))]),
        "is cut off: its header has more",
    ),
    "a long name": (header([], [info("a" * 65, [1])]), "the name of a tensor has 65 bytes; at most 64 are allowed"),
    "a tensor twice": (header([], _ONE * 2), "the tensor a stands in it twice"),
    "no dimensions": (header([], [info("a", [])]), "a has 0 dimensions; 1 to 4 are allowed"),
    "five dimensions": (header([], [info("a", [1] * 5)]), "a has 5 dimensions; 1 to 4 are allowed"),
    "no elements": (header([], [info("a", [4, 0])]), r"a has the shape \[0, 4\], with no or too many elements"),
    "too many elements": (header([], [info("a", [_HUGE, _HUGE])]), "with no or too many elements"),
    "an unknown type": (header([], [info("a", [8], 4)]), "a has the unknown type 4"),
    "half a block": (header([], [info("a", [40], _Q8_0)]), "a has rows of 40 elements; Q8_0 has blocks of 32"),
    "an odd offset": (padded(header([], [info("a", [8], offset=8)]), bytes(99)), "a is at offset 8, which is no"),
    "an offset beyond": (padded(header([], [info("a", [8], offset=_HUGE)]), bytes(99)), "is cut off: a ends at byte"),
    "missing data": (padded(header([], _ONE), bytes(31)), r"is cut off: a ends at byte 96 of 95"),
    "tensors that overlap": (
        padded(header([], [info("a", [16]), info("b", [8], offset=32)]), bytes(99)),
        "b overlaps the tensor before it",
    ),
    "an odd alignment": (
        header([pair("general.alignment", UINT32, number(24, "I"))]),
        "general.alignment is 24; it must be a power of two from 8 to 65536",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("contents", "message"), _BAD.values(), ids=_BAD.keys())
def test_a_damaged_header_is_refused_with_one_sentence(contents: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        opened(tmp_path, contents)
    assert str(raised.value).startswith(str(tmp_path / "model.gguf"))
    assert "\n" not in str(raised.value)


def test_a_file_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    strings = number(TEXT, "I") + number(2) + text("a") + text("b")
    whole = padded(header([pair("words", LIST, strings), pair("word", TEXT, text("x"))], _ONE), bytes(32))
    opened(tmp_path, whole)
    for end in range(len(whole)):
        with pytest.raises(ModelError):
            opened(tmp_path, whole[:end])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for name in ("pipe.gguf", "missing.gguf", "."):
        with pytest.raises(ModelError, match="is not a file"):
            GgufFile.open(tmp_path / name)


def test_a_string_of_a_list_that_is_not_utf_8_is_refused_when_it_is_read(tmp_path: Path) -> None:
    metadata = opened(tmp_path, header([pair("a", LIST, number(TEXT, "I") + number(1) + text(b"\xff"))])).metadata
    with pytest.raises(ModelError, match="a holds a string that is not UTF-8"):
        metadata.texts("a")


def test_writing_to_the_map_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    contents = padded(header([], _ONE), bytes(32))
    file = opened(tmp_path, contents)
    file.data[file.tensors["a"].start] = 1
    assert (tmp_path / "model.gguf").read_bytes() == contents
