"""Encryption at rest: AES-GCM over a page's data, with its key and header authenticated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from outrider.kvcache.blob import HEADER_BYTES, DamagedPage
from outrider.kvcache.tiers import TierError

_NONCE_BYTES = 12
_KEY_BYTES = (16, 24, 32)


class Seal(Protocol):
    """Encrypts blobs at rest."""

    def seal(self, key: bytes, blob: bytes) -> bytes:
        """The sealed form of ``blob``; its header stays readable."""

    def open(self, key: bytes, sealed: bytes) -> bytes:
        """The blob of a sealed form; `DamagedPage` if the sealed form was changed."""


class Plain:
    """No encryption."""

    def seal(self, key: bytes, blob: bytes) -> bytes:
        """See `Seal`."""
        return blob

    def open(self, key: bytes, sealed: bytes) -> bytes:
        """See `Seal`."""
        return sealed


class AesGcm:
    """AES-GCM (NIST SP 800-38D) with a random nonce for each blob.

    Args:
        path: file with the key, 16, 24 or 32 bytes.

    Raises:
        TierError: the file cannot be read or has another length.
    """

    def __init__(self, path: Path) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            secret = path.read_bytes()
        except OSError as error:
            raise TierError(f"key_file: {path}: {error.strerror}") from None
        if len(secret) not in _KEY_BYTES:
            raise TierError(f"key_file: {path} has {len(secret)} bytes; a key has 16, 24 or 32")
        self._cipher = AESGCM(secret)

    def seal(self, key: bytes, blob: bytes) -> bytes:
        """See `Seal`."""
        header, nonce = blob[:HEADER_BYTES], os.urandom(_NONCE_BYTES)
        return header + nonce + self._cipher.encrypt(nonce, blob[HEADER_BYTES:], key + header)

    def open(self, key: bytes, sealed: bytes) -> bytes:
        """See `Seal`."""
        from cryptography.exceptions import InvalidTag

        header, nonce = sealed[:HEADER_BYTES], sealed[HEADER_BYTES : HEADER_BYTES + _NONCE_BYTES]
        try:
            return header + self._cipher.decrypt(nonce, sealed[HEADER_BYTES + _NONCE_BYTES :], key + header)
        except (InvalidTag, ValueError):
            raise DamagedPage from None
