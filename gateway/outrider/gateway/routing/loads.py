"""How many requests each verifier has: this gateway's own, which it counts, and those of others, as last announced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from outrider.mesh.registry import Member


class Loads:
    """Counts this gateway's streams on verifiers, and keeps what announcements say beyond them.

    An announcement is up to a second old and counts this gateway's streams of then. What others have is therefore the
    announced number without the streams that this gateway had when it heard the announcement.
    """

    def __init__(self) -> None:
        self._own: Counter[str] = Counter()
        self._heard: dict[str, Member] = {}
        self._others: dict[str, int] = {}

    def enter(self, instance: str) -> None:
        """Counts a stream on a verifier."""
        self._own[instance] += 1

    def leave(self, instance: str) -> None:
        """Ends the count of a stream."""
        self._own[instance] -= 1
        if not self._own[instance]:
            del self._own[instance]

    def hear(self, members: Iterable[Member]) -> None:
        """Takes what verifiers announce, at once when one of them changes; forgets verifiers that are gone."""
        heard = {member.instance: member for member in members}
        for name, member in heard.items():
            if member != self._heard.get(name):
                self._others[name] = max(int(member.status.get("load", 0)) - self._own[name], 0)
        self._heard = heard
        self._others = {name: self._others[name] for name in heard}

    def of(self, member: Member) -> int:
        """Requests of a verifier, running and waiting."""
        return self._own[member.instance] + self._others.get(member.instance, 0)
