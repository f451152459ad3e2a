"""Names of a prompt's pages, the same for verifiers, which keep the pages, and for routers, which look for them."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence


def chain_salt(vocabulary: bytes, tenant: str, cache_salt: str = "") -> bytes:
    """The beginning of a tenant's chains of names, so that no two tenants share a page, and no two salts of one.

    Args:
        vocabulary: SHA-256 of the model's vocabulary, hexadecimal.
        tenant: the prompt's tenant.
        cache_salt: the request's salt; empty without one.
    """
    return vocabulary + tenant.encode() + (b"\0" + cache_salt.encode() if cache_salt else b"")


def chain_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Name [32] of a page: SHA-256 over the name of the page before it (or the chain's salt) and its tokens."""
    return hashlib.sha256(parent + array("i", tokens).tobytes()).digest()


def chain_hashes(
    vocabulary: bytes, tenant: str, tokens: Sequence[int], page_size: int, cache_salt: str = ""
) -> list[bytes]:
    """Names of all full pages of ``tokens``."""
    name, names = chain_salt(vocabulary, tenant, cache_salt), []
    for start in range(0, len(tokens) - page_size + 1, page_size):
        name = chain_hash(name, tokens[start : start + page_size])
        names.append(name)
    return names
