"""Which instance of the KV cache keeps which page.

Rendezvous hashing (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates"): of n instances, one
that comes or goes moves about one page in n, and those only to or from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

SEGMENT = 32
"""Pages that lie together, so that few instances are asked for a prompt, and losing one does not cut every prompt."""


def instance_of(name: bytes, instances: Iterable[str]) -> str:
    """The instance that keeps what is called ``name``; there must be one."""
    return max(instances, key=lambda instance: hashlib.sha256(instance.encode() + b"\0" + name).digest())


def instances_of(keys: Sequence[bytes], instances: Iterable[str]) -> list[str]:
    """The instance of each page of a chain, from the chain's first page on: a segment goes by its first page."""
    known = list(instances)
    owners = [instance_of(keys[start], known) for start in range(0, len(keys), SEGMENT)]
    return [owners[index // SEGMENT] for index in range(len(keys))]
