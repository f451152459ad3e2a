"""Sealed thoughts: clients keep them, and send them back without reading or changing them."""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

from outrider.mesh.errors import ConfigError

_KEY_BYTES = 64
_MARK = "outrider-1."
"""Begins a sealed thought, so that those of other servers are told apart without a trial."""


class Seal:
    """AES-SIV (RFC 5297), in which equal thoughts look equal: whoever reads a stream again gets the same events.

    A thought opens for its own tenant alone. Gateways with the same ``key`` open each other's thoughts; without one, a
    gateway opens its own.
    """

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        self._cipher = AESSIV(key or os.urandom(_KEY_BYTES))

    @classmethod
    def with_file(cls, path: str) -> Seal:
        """A seal with the key in the file at ``path``, if that is not empty; raises `ConfigError`."""
        if not path:
            return cls()
        try:
            key = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"gateway.thought_key_file: {path}: {error.strerror}") from None
        if len(key) != _KEY_BYTES:
            raise ConfigError(f"gateway.thought_key_file: {path} has {len(key)} bytes; a key has {_KEY_BYTES}")
        return cls(key)

    def close(self, thought: str, tenant: str) -> str:
        """``thought``, which is not empty, sealed."""
        return _MARK + urlsafe_b64encode(self._cipher.encrypt(thought.encode(), [tenant.encode()])).decode()

    def open(self, sealed: str, tenant: str) -> str | None:
        """The thought in ``sealed``; None if it is another server's, another tenant's, or was changed."""
        from cryptography.exceptions import InvalidTag

        if not sealed.startswith(_MARK):
            return None
        try:
            data = urlsafe_b64decode(sealed.removeprefix(_MARK))
            return self._cipher.decrypt(data, [tenant.encode()]).decode()
        except (InvalidTag, binascii.Error, ValueError):
            return None
