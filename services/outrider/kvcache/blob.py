"""The stored form of a page: a header and the data."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import astuple, dataclass

from outrider.wire.pages import page_checksum

_HEADER = struct.Struct("<4sIIIIfd16sd")
_MAGIC = b"OKV2"
HEADER_BYTES = _HEADER.size


class DamagedPage(Exception):
    """A stored page has changed since it was written."""


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a page.

    Attributes:
        checksum: CRC-32C of key and data.
        size: bytes of the data.
        tokens: number of tokens.
        index: number of pages before it in its chain.
        seconds: time to compute the page.
        expires: time of expiry, as in `time.time`.
        owner: hashed tenant, as in `owner_of`.
        stored: time at which a verifier sent the page, as in `time.time`.
    """

    checksum: int
    size: int
    tokens: int
    index: int
    seconds: float
    expires: float
    owner: bytes
    stored: float = 0.0

    def pack(self) -> bytes:
        """The header's bytes [HEADER_BYTES]."""
        return _HEADER.pack(_MAGIC, *astuple(self))

    @classmethod
    def read(cls, blob: bytes) -> Header:
        """The header at the beginning of ``blob``; `DamagedPage` if there is none."""
        if len(blob) < HEADER_BYTES:
            raise DamagedPage
        magic, *fields = _HEADER.unpack_from(blob)
        if magic != _MAGIC:
            raise DamagedPage
        return cls(*fields)


def owner_of(tenant: str) -> bytes:
    """A tenant's hash in headers, 16 bytes."""
    return hashlib.sha256(tenant.encode()).digest()[:16]


def open_blob(key: bytes, blob: bytes) -> tuple[Header, bytes]:
    """Header and data of a page stored under ``key``; `DamagedPage` if size or checksum do not match."""
    header = Header.read(blob)
    data = blob[HEADER_BYTES:]
    if len(data) != header.size or page_checksum(key, data) != header.checksum:
        raise DamagedPage
    return header, data
