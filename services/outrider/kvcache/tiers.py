"""What a tier is: a place for pages, by plug-ins in the group `outrider.cache_tiers`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

GROUP = "outrider.cache_tiers"


class TierError(Exception):
    """A tier cannot be opened as it is configured; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class TierContext:
    """What a tier is made of.

    Attributes:
        capacity: most bytes that will be written to it, together.
        instance: name of this process in the mesh.
        options: the operator's settings of the tier, each to be honoured or refused.
    """

    capacity: int
    instance: str
    options: dict[str, Any]


class Tier(Protocol):
    """Keeps blobs (`outrider.kvcache.blob`) by 32-byte keys. Called by one thread at a time.

    What to keep is decided elsewhere; a tier only fails to where it has no room. Nothing it does raises: what cannot be
    written is not there, and what cannot be read is missing.

    Attributes:
        shared: whether other instances write to it too, so that it may hold what was never written here.
    """

    shared: bool

    def write(self, key: bytes, blob: bytes) -> bool:
        """Keeps ``blob`` whole or not at all; whether it is kept."""

    def read(self, key: bytes) -> bytes | None:
        """The blob, or what has become of it; None where there is none."""

    def remove(self, key: bytes) -> None:
        """Forgets the blob, if there is one."""

    def stored(self) -> Iterable[tuple[bytes, bytes]]:
        """Keys and at least the headers of what is there from an earlier life."""

    def close(self) -> None:
        """Lets go of everything that does not outlive the process."""


def no_options(name: str, left: dict[str, Any]) -> None:
    """`TierError` if any options are left over."""
    if left:
        raise TierError(f"kvcache.options.{name} has no {', '.join(sorted(left))}")
