"""Prompt lookup: guesses that a sequence goes on as it did the last time its latest tokens stood there.

Saxena 2023, "Prompt lookup decoding". It needs no model, so it runs inside the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.models.speculation.drafter import DrafterContext, DrafterError, Opening
from outrider.models.speculation.matches import match_confidence
from outrider.models.speculation.tree import DraftTree

_LONGEST = 64
_NONE = -1
"""Stands where a sequence had no token yet: no run with it is ever looked for and found."""


@dataclass(slots=True)
class _Session:
    tokens: list[int]
    seen: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0
    before: tuple[int, int, int] = (_NONE, _NONE, _NONE)

    def index(self) -> None:
        """Takes note of where each run of two to four tokens was last followed by another token."""
        seen, (one, two, three) = self.seen, self.before
        for end, four in enumerate(self.tokens[self.indexed : -1], self.indexed + 1):
            seen[one, two, three, four] = seen[two, three, four] = seen[three, four] = end
            one, two, three = two, three, four
        self.indexed, self.before = max(len(self.tokens) - 1, 0), (one, two, three)

    def find(self) -> tuple[int, int] | None:
        """Place behind the last occurrence of the run of two to four tokens that ends the sequence, and how many tokens
        before both places are the same, `_LONGEST` at most."""
        one, two, three = self.before
        four = self.tokens[-1] if self.tokens else _NONE
        for run in ((one, two, three, four), (two, three, four), (three, four)):
            if (place := self.seen.get(run)) is not None:
                return place, self._match(place, len(run))
        return None

    def _match(self, place: int, length: int) -> int:
        tokens, most = self.tokens, min(place, _LONGEST)
        while length < most and tokens[place - 1 - length] == tokens[-1 - length]:
            length += 1
        return length


class NgramDrafter:
    """One chain a sequence, copied from the sequence itself. Options: ``most``, tokens of a chain (16)."""

    name = "ngram"

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
        """Moves on behind what the target decided."""
        if session in self._sessions:
            self._sessions[session].tokens.extend(tokens)
            self._stale.add(session)

    def close(self, session: int) -> None:
        """Forgets the sequence."""
        self._sessions.pop(session, None)
        self._stale.discard(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        """A chain for each session that has moved on and repeats itself."""
        stale, self._stale = self._stale, set()
        found = [(session, self._chain(self._sessions[session])) for session in sorted(stale)]
        return [(session, tree) for session, tree in found if tree is not None]

    def _chain(self, session: _Session) -> DraftTree | None:
        session.index()
        found = session.find()
        if found is None:
            return None
        place, length = found
        copied = session.tokens[place : place + self._most]
        confidences = [match_confidence(length + depth) for depth in range(len(copied))]
        return DraftTree(len(session.tokens), copied, list(range(-1, len(copied) - 1)), confidences, self.name)
