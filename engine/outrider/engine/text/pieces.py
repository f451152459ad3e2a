"""The bytes that each token adds to a text, by the tokenizer's kind of decoder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def decoder_kinds(decoder: Mapping[str, Any] | None) -> list[str]:
    """Types of the decoders in ``tokenizer.json``'s ``decoder``, with sequences flattened."""
    if decoder is None:
        return []
    if decoder["type"] != "Sequence":
        return [decoder["type"]]
    return [kind for inner in decoder["decoders"] for kind in decoder_kinds(inner)]


def is_byte_level(kinds: list[str]) -> bool:
    """Whether a text is the joined bytes of its tokens (GPT-2's scheme)."""
    return "ByteLevel" in kinds and set(kinds) <= {"ByteLevel", "Fuse"}


def is_byte_token(token: str) -> bool:
    """Whether ``token`` is one byte of SentencePiece's byte fallback, as ``<0x0A>``."""
    return _BYTE_TOKEN.fullmatch(token) is not None


def token_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; UTF-8 for an added token outside GPT-2's alphabet."""
    try:
        return token.translate(_TO_BYTE).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8")


def piece_bytes(token: str) -> bytes:
    """Bytes of a single SentencePiece token: its bar is a space, ``<0x0A>`` is a byte."""
    if is_byte_token(token):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _alphabet() -> Iterator[tuple[int, int]]:
    """Pairs of character and byte in GPT-2's alphabet; 0xFFFF for characters outside it."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    yield from ((byte, byte) for byte in printable)
    yield from ((byte, 0xFFFF) for byte in rest)
    yield from ((256 + index, byte) for index, byte in enumerate(rest))


_TO_BYTE = dict(_alphabet())
