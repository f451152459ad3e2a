"""Prompt lookup: guesses that a sequence continues as it did after the last occurrence of its latest tokens.

Saxena 2023, "Prompt lookup decoding". The drafter needs no model and runs in the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.engine.speculation.drafters.drafter import Drafter, DrafterContext, DrafterError, Opening, Traits
from outrider.engine.speculation.drafters.matches import match_confidence
from outrider.engine.speculation.trees.tree import DraftTree

_LONGEST = 64
_NONE = -1
"""Stands before the first token of a sequence; no lookup finds a run with it."""


@dataclass(slots=True)
class _Session:
    tokens: list[int]
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0
    before: tuple[int, int, int] = (_NONE, _NONE, _NONE)

    def index(self) -> None:
        """Stores the last end of each run of two to four tokens that is followed by another token."""
        ends, (one, two, three) = self.ends, self.before
        for end, four in enumerate(self.tokens[self.indexed : -1], self.indexed + 1):
            ends[one, two, three, four] = ends[two, three, four] = ends[three, four] = end
            one, two, three = two, three, four
        self.indexed, self.before = max(len(self.tokens) - 1, 0), (one, two, three)

    def find(self) -> tuple[int, int] | None:
        """End of the last occurrence of the run of two to four tokens that ends the sequence, and the length of the
        match of both ends, at most `_LONGEST`."""
        one, two, three = self.before
        four = self.tokens[-1] if self.tokens else _NONE
        for run in ((one, two, three, four), (two, three, four), (three, four)):
            if (place := self.ends.get(run)) is not None:
                return place, self._match(place, len(run))
        return None

    def _match(self, place: int, length: int) -> int:
        tokens, most = self.tokens, min(place, _LONGEST)
        while length < most and tokens[place - 1 - length] == tokens[-1 - length]:
            length += 1
        return length


class NgramDrafter(Drafter):
    """Makes one chain for each sequence, copied from the sequence. Options: ``most``, tokens of a chain (16)."""

    name = "ngram"
    traits = Traits(auto=True)

    def __init__(self, context: DrafterContext) -> None:
        unknown = set(context.options) - {"most"}
        if unknown:
            raise DrafterError(f"the ngram drafter's only option is most; not {', '.join(sorted(unknown))}")
        self.context_length = context.context_length
        self._most = context.options.get("most", 16)
        if type(self._most) is not int:
            raise DrafterError(f"the ngram drafter's most is {self._most!r}; it must be a whole number")
        self._sessions: dict[int, _Session] = {}
        self._stale: set[int] = set()

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self._sessions[session] = _Session(list(opening.tokens))
        self._stale.add(session)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens."""
        if session in self._sessions:
            self._sessions[session].tokens.extend(tokens)
            self._stale.add(session)

    def close(self, session: int) -> None:
        """Forgets the sequence."""
        self._sessions.pop(session, None)
        self._stale.discard(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        """A chain for each session that has new tokens and repeats itself."""
        stale, self._stale = self._stale, set()
        chains = [(session, self._chain(self._sessions[session])) for session in sorted(stale)]
        return [(session, tree) for session, tree in chains if tree is not None]

    def _chain(self, session: _Session) -> DraftTree | None:
        session.index()
        match = session.find()
        if match is None:
            return None
        place, length = match
        copied = session.tokens[place : place + self._most]
        confidences = [match_confidence(length + depth) for depth in range(len(copied))]
        return DraftTree(len(session.tokens), copied, list(range(-1, len(copied) - 1)), confidences, self.name)
