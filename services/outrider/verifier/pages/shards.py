"""Assigns each page to an instance of the KV cache.

Rendezvous hashing (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates"): an instance that
joins or leaves n instances moves about one page in n, and only pages to or from itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

SEGMENT = 32
"""Consecutive pages on one instance: a prompt needs few instances, and losing one does not cut every prompt."""


def instance_of(name: bytes, instances: Iterable[str]) -> str:
    """The instance that keeps the page ``name``; ``instances`` must not be empty."""
    return max(instances, key=lambda instance: hashlib.sha256(instance.encode() + b"\0" + name).digest())


def instances_of(keys: Sequence[bytes], instances: Iterable[str]) -> list[str]:
    """The instance of each page of a chain. ``keys`` begin at the chain's first page; a segment follows its first."""
    names = list(instances)
    owners = [instance_of(keys[start], names) for start in range(0, len(keys), SEGMENT)]
    return [owners[index // SEGMENT] for index in range(len(keys))]
