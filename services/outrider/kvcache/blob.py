"""A page as tiers keep it: a header that says what it is, and the data."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from outrider.wire.pages import page_checksum

_HEADER = struct.Struct("<4sIIIIfd16s")
_MAGIC = b"OKV1"
HEADER_BYTES = _HEADER.size


class Damaged(Exception):
    """A stored page is not what was stored."""


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a page without its data.

    Attributes:
        checksum: CRC-32C of key and data.
        size: bytes of the data.
        tokens: of the page.
        index: pages before it in its chain.
        seconds: that computing it takes.
        expires: of `time.time`.
        owner: of `owner_of`.
    """

    checksum: int
    size: int
    tokens: int
    index: int
    seconds: float
    expires: float
    owner: bytes

    def pack(self) -> bytes:
        """The header's bytes [HEADER_BYTES]."""
        fields = (self.checksum, self.size, self.tokens, self.index, self.seconds, self.expires, self.owner)
        return _HEADER.pack(_MAGIC, *fields)

    @classmethod
    def read(cls, blob: bytes) -> Header:
        """The header that ``blob`` begins with; `Damaged` where it does not begin with one."""
        if len(blob) < HEADER_BYTES:
            raise Damaged
        magic, *fields = _HEADER.unpack_from(blob)
        if magic != _MAGIC:
            raise Damaged
        return cls(*fields)


def owner_of(tenant: str) -> bytes:
    """A tenant as headers name it, 16 bytes."""
    return hashlib.sha256(tenant.encode()).digest()[:16]


def open_blob(key: bytes, blob: bytes) -> tuple[Header, bytes]:
    """Header and data of a page that was stored under ``key``; `Damaged` where anything about it is not as it was."""
    header = Header.read(blob)
    data = blob[HEADER_BYTES:]
    if len(data) != header.size or page_checksum(key, data) != header.checksum:
        raise Damaged
    return header, data
