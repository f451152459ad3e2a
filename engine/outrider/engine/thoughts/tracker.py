"""Follows an answer token by token: whether it is about to think, thinks, or answers.

Where a token stands depends on the tokens before it alone, so that guesses, batches and fail-over change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from outrider.engine.requests.parameters import Mark, Thought

_TAIL = 64
"""Tokens at the end of a prompt among which a mark is looked for."""


class Phase(Enum):
    """What an answer does."""

    OPENING = auto()
    THINKING = auto()
    ANSWERING = auto()


class Place(NamedTuple):
    """Where an answer stands behind some of its tokens.

    Attributes:
        seen: its tokens while it is opening; while it thinks, the last tokens, among which the end mark begins.
        read: its tokens so far.
        thought: tokens of the thought so far, those of a forced end included.
        begin: tokens before the text of the answer proper; 0 where nothing marks a beginning.
    """

    phase: Phase
    seen: tuple[int, ...] = ()
    read: int = 0
    thought: int = 0
    begin: int = 0


class Tracker:
    """Follows answers with these marks.

    Args:
        thought: the marks and the budget.
        table: the bytes of every token by id.
        vocabulary: number of ids, that of the model's logits.
    """

    def __init__(self, thought: Thought, table: Sequence[bytes], vocabulary: int) -> None:
        self.thought, self.vocabulary, self._table = thought, vocabulary, table
        self._openings = [mark for mark in (thought.start, thought.plain) if mark is not None]

    def start(self, prompt: Sequence[int]) -> Place:
        """The place behind a prompt: templates may open a thought, or an empty one that is closed again."""
        tail = tuple(prompt[-_TAIL:])
        while tail and self._bytes(tail[-1:]).isspace():
            tail = tail[:-1]
        if self._ends_with(self.thought.end, tail):
            return Place(Phase.ANSWERING)
        return Place(Phase.THINKING if self._ends_with(self.thought.start, tail) else Phase.OPENING)

    def after(self, place: Place, token: int) -> Place:
        """The place behind one more token."""
        read = place.read + 1
        if place.phase is Phase.ANSWERING:
            return place._replace(read=read)
        seen = (*place.seen, token)
        if place.phase is Phase.OPENING:
            return self._opened(seen, read)
        end, thought = self.thought.end, place.thought + 1
        if self._ends_with(end, seen):
            return Place(Phase.ANSWERING, (), read, thought, read)
        kept = len(end.text.encode()) if end.text else len(end.ids) - 1
        return Place(Phase.THINKING, seen[-kept:] if kept else (), read, thought)

    def due(self, place: Place) -> int | None:
        """The only token that may follow: one of the end mark, once the budget is used up."""
        budget = self.thought.budget
        if budget is None or place.phase is not Phase.THINKING or place.thought < budget:
            return None
        return self.thought.end.ids[min(place.thought - budget, len(self.thought.end.ids) - 1)]

    def openings(self, place: Place) -> list[int]:
        """While an answer is opening: the tokens that go on with a mark at its beginning."""
        count = len(place.seen)
        marks = [mark.ids for mark in self._openings]
        return [ids[count] for ids in marks if len(ids) > count and ids[:count] == place.seen]

    def pending(self, place: Place) -> int:
        """While an answer thinks: how many of its last tokens may be the beginning of an end mark made of tokens."""
        ids = self.thought.end.ids
        if self.thought.end.text:
            return 0
        longest = min(len(place.seen), len(ids) - 1)
        return next((size for size in range(longest, 0, -1) if place.seen[-size:] == ids[:size]), 0)

    def _opened(self, seen: tuple[int, ...], read: int) -> Place:
        matches = {mark: self._begins(mark, seen) for mark in self._openings}
        if matches[self.thought.start]:
            return Place(Phase.THINKING, (), read)
        if any(matches.values()):
            return Place(Phase.ANSWERING, (), read, 0, read)
        if None in matches.values():
            return Place(Phase.OPENING, seen, read)
        return Place(Phase.ANSWERING, (), read)

    def _begins(self, mark: Mark, seen: tuple[int, ...]) -> bool | None:
        """Whether ``seen`` begins with the mark; None if it may once more tokens follow."""
        if not mark.text:
            return True if seen[: len(mark.ids)] == mark.ids else None if mark.ids[: len(seen)] == seen else False
        data, text = self._bytes(seen).lstrip(), mark.text.encode()
        return True if data.startswith(text) else None if text.startswith(data) else False

    def _ends_with(self, mark: Mark, tail: tuple[int, ...]) -> bool:
        """Whether the mark ends with the last token of ``tail``, or inside it."""
        if not mark.text:
            return tail[-len(mark.ids) :] == mark.ids
        text, last = mark.text.encode(), len(self._bytes(tail[-1:]))
        place = self._bytes(tail).rfind(text)
        return place >= 0 and place + len(text) > len(self._bytes(tail)) - last

    def _bytes(self, tokens: tuple[int, ...]) -> bytes:
        table = self._table
        return b"".join(table[token] for token in tokens if 0 <= token < len(table))
