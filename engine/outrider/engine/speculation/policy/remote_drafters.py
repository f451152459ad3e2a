"""Remote drafters, as the engine sees them: by their trees."""

from __future__ import annotations

from collections.abc import Callable, Set
from collections.abc import Sequence as Seq

from outrider.engine.requests.sequence import Sequence

_REMEMBERED_S = 5.0


class RemoteDrafters:
    """Remembers the drafters that offered trees lately. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_trees: dict[str, float] = {}

    @property
    def names(self) -> Set[str]:
        """The drafters that offered a tree since `active` last forgot silent ones."""
        return self._last_trees.keys()

    def note_tree(self, drafter: str) -> None:
        """Notes that a drafter offered a tree."""
        self._last_trees[drafter] = self._clock()

    def active(self, sequences: Seq[Sequence]) -> Set[str]:
        """The drafters that offered a tree in the last 5 seconds and that one of ``sequences`` admits."""
        now = self._clock()
        self._last_trees = {name: last for name, last in self._last_trees.items() if now - last < _REMEMBERED_S}
        return {name for name in self._last_trees if any(sequence.request.admits(name) for sequence in sequences)}
