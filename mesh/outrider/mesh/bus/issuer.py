"""The key by which a mesh admits users to its broker: it signs their JWTs, and opens the broker's questions.

The formats are NATS's: nkeys, JWTs of version 2 (Ed25519), and boxes of xkeys (X25519, XSalsa20, Poly1305).
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import nkeys
from nacl.exceptions import CryptoError
from nacl.public import Box, PublicKey
from nacl.signing import SigningKey
from outrider.mesh.bus.login import SEED_SUFFIX
from outrider.mesh.errors import ConfigError

ISSUER = "issuer"
ACCOUNT = "OUTRIDER"
"""The account of the broker in which services and clients are."""
_XKEY_PREFIX = bytes([23 << 3])
"""The first byte of a public xkey, whose text then begins with X."""
_BOX = b"xkv1"
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


class Issuer:
    """An account's nkey, whose seed is in the file ``path``; `ConfigError` if it cannot be read or is none.

    Boxes are opened and sealed with the same key as X25519 (libsodium's `crypto_sign_ed25519_sk_to_curve25519`), so
    that a mesh keeps one secret.
    """

    def __init__(self, path: Path) -> None:
        try:
            seed = path.read_bytes().strip()
            prefix, raw = nkeys.decode_seed(seed)
            if prefix != nkeys.PREFIX_BYTE_ACCOUNT:
                raise nkeys.ErrInvalidPrefixByte
        except (OSError, ValueError, nkeys.NkeysError) as error:
            raise ConfigError(f"{path} holds no seed of an account's nkey: {error or 'it is malformed'}") from None
        self._pair = nkeys.from_seed(seed)
        self._secret = SigningKey(bytes(raw)).to_curve25519_private_key()

    @property
    def public_key(self) -> str:
        """The nkey that the broker expects signatures of."""
        return str(self._pair.public_key.decode())

    @property
    def xkey(self) -> str:
        """The xkey for which the broker seals its questions."""
        data = _XKEY_PREFIX + bytes(self._secret.public_key)
        return base64.b32encode(data + nkeys.crc16_checksum(data)).rstrip(b"=").decode()

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A JWT with ``claims``, issued now."""
        issued = {"jti": token_hex(16), "iat": int(time.time()), "iss": self.public_key}
        content = b".".join(_base64(msgspec.json.encode(part)) for part in (_HEADER, {**issued, **claims}))
        return b".".join((content, _base64(self._pair.sign(content)))).decode()

    def open(self, box: bytes, sender: str) -> bytes:
        """What the xkey ``sender`` sealed for this one; `ValueError` for anything else."""
        if not box.startswith(_BOX):
            raise ValueError("this is no box of an xkey")
        try:
            return Box(self._secret, _xkey(sender)).decrypt(box.removeprefix(_BOX))
        except CryptoError:
            raise ValueError("the box is not for this xkey, or damaged") from None

    def seal(self, data: bytes, receiver: str) -> bytes:
        """A box that only the xkey ``receiver`` can open."""
        return _BOX + Box(self._secret, _xkey(receiver)).encrypt(data)


def find_issuer(setting: str) -> Issuer | None:
    """The issuer for the setting ``nats_credentials``, in its directory or beside its file; None without one.

    `ConfigError` if its seed cannot be read or is none.
    """
    path = Path(setting)
    file = (path if path.is_dir() else path.parent) / f"{ISSUER}{SEED_SUFFIX}"
    return Issuer(file) if setting and file.exists() else None


def _xkey(text: str) -> PublicKey:
    """The key that NATS writes as ``text``; `ValueError` if it is none."""
    data = base64.b32decode(text + "=" * (-len(text) % 8))
    if data[:1] != _XKEY_PREFIX or nkeys.crc16_checksum(data[:-2]) != data[-2:]:
        raise ValueError("this is no xkey")
    return PublicKey(data[1:-2])


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
