"""Keys and checksums of pages in the KV cache, the same for writers and readers.

The checksum is CRC-32C by google-crc32c: several times as quick as `zlib.crc32` where the CPU has instructions for it.
It guards against accidents, not against forgers.
"""

from __future__ import annotations

import hashlib

import google_crc32c


def page_key(fingerprint: bytes, tenant: str, chain: bytes) -> bytes:
    """SHA-256 [32] that names a page.

    Args:
        fingerprint: SHA-256 of model and layout.
        tenant: the page's tenant.
        chain: SHA-256 over the page's tokens and those of all pages before it.
    """
    return hashlib.sha256(fingerprint + chain + tenant.encode()).digest()


def page_checksum(key: bytes, data: bytes) -> int:
    """CRC-32C of key and data, which also detects an intact page in another's place."""
    return int(google_crc32c.extend(google_crc32c.value(key), data))
