"""The interface of a tier, which stores pages. Tiers are plug-ins of the group `outrider.cache_tiers`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

GROUP = "outrider.cache_tiers"


class TierError(Exception):
    """A tier cannot be opened with its configuration; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class TierContext:
    """The arguments of a tier.

    Attributes:
        capacity: most bytes that the tier will hold.
        instance: name of this process in the mesh.
        options: the operator's settings of the tier; the tier must use or refuse each.
    """

    capacity: int
    instance: str
    options: dict[str, Any]


class Tier(Protocol):
    """Stores blobs (`outrider.kvcache.blob`) by 32-byte keys. Called by one thread at a time.

    The store decides what to keep; a tier refuses a blob only if it has no room. No method raises: a failed write
    returns False, and a failed read returns None.

    Attributes:
        shared: whether other instances write to the tier too.
    """

    shared: bool

    def write(self, key: bytes, blob: bytes) -> bool:
        """Stores ``blob`` atomically; False if it cannot be stored."""

    def read(self, key: bytes) -> bytes | None:
        """The blob, which may be damaged; None if there is none."""

    def remove(self, key: bytes) -> None:
        """Removes the blob, if present."""

    def stored(self) -> Iterable[tuple[bytes, bytes]]:
        """Keys of the blobs that outlive a process, each with at least its header; of a shared tier, those of all."""

    def close(self) -> None:
        """Releases everything that does not outlive the process."""


def no_options(name: str, left: dict[str, Any]) -> None:
    """Raises `TierError` if ``left`` holds any options."""
    if left:
        raise TierError(f"kvcache.options.{name} has no {', '.join(sorted(left))}")
