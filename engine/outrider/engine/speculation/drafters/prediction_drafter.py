"""Guesses that the answer is the text that its client expects: OpenAI's predicted outputs.

The idea of matching the answer with a given text is that of Yang et al. 2023, "Inference with Reference".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from outrider.engine.speculation.drafters.drafter import Drafter, DrafterContext, DrafterError, Opening, Traits
from outrider.engine.speculation.drafters.matches import match_confidence
from outrider.engine.speculation.trees.tree import PREDICTION, DraftTree

_FIRST, _NEAR, _PLACES, _LONGEST = 4, 16, 8, 64
"""The match that the beginning counts as, the predicted tokens among which a single one is looked for, and the most
places and tokens that are compared for one token of the answer."""


@dataclass(slots=True)
class _Session:
    """A sequence and its prediction. The answer goes on at ``place`` of ``predicted``, after ``match`` equal tokens.

    So far, ``right`` of its tokens were those predicted at their place, and ``wrong`` of them were others.
    """

    predicted: Sequence[int]
    most: int
    tenant: str
    length: int
    answer: list[int] = field(default_factory=list)
    place: int = 0
    match: int = _FIRST
    right: int = 0
    wrong: int = 0
    ends: dict[tuple[int, ...], list[int]] | None = None

    def take(self, tokens: Sequence[int]) -> None:
        """Follows the prediction along the ``tokens`` of the answer."""
        for token in tokens:
            self.answer.append(token)
            if self.place < len(self.predicted) and self.predicted[self.place] == token:
                self.place, self.match, self.right = self.place + 1, self.match + 1, self.right + 1
            else:
                self.wrong += self.match > 0
                self._align()

    def _align(self) -> None:
        """Finds the place after the answer's last tokens again, after a token that was not predicted.

        The place is behind the longest match of at least two tokens, or else behind the next occurrence of the last
        token nearby. Of equal matches, the first one after the last place counts; earlier ones come after all later
        ones. Where there is none, the place stays.
        """
        place = max(self._places(), key=self._matched, default=None)
        if place is None:
            near = self.predicted[self.place : self.place + _NEAR]
            place = self.place + near.index(self.answer[-1]) + 1 if self.answer[-1] in near else None
        self.place, self.match = (self.place, 0) if place is None else (place, self._matched(place))

    def _places(self) -> Iterator[int]:
        """Some places after the answer's last two tokens in the prediction, in the order of the search."""
        if self.ends is None:
            self.ends = defaultdict(list)
            for end, pair in enumerate(pairwise(self.predicted), 2):
                self.ends[pair].append(end)
        ends = self.ends.get(tuple(self.answer[-2:]), [])
        after = bisect_left(ends, self.place)
        yield from ends[after : after + _PLACES]
        yield from reversed(ends[max(after - _PLACES, 0) : after])

    def _matched(self, place: int) -> int:
        """Number of equal tokens before ``place`` and at the end of the answer."""
        length, most = 0, min(place, len(self.answer), _LONGEST)
        while length < most and self.predicted[place - 1 - length] == self.answer[-1 - length]:
            length += 1
        return length

    def chain(self) -> DraftTree | None:
        """The predicted tokens that follow; None where the place is not known, or is the end.

        They are as sure as after a match that is longer by the tokens that were right between two wrong ones. Measured
        on 24 edits by Qwen2.5-Coder-0.5B-Instruct, greedy, with the old function and with another one as predictions:
        0.3 follow a match of one token where at most 1 was right between wrong ones, 0.6 where 2 were, and 0.7 above 8;
        after 9 to 14 tokens these are 0.7 (2) and 0.99 (above 2).
        """
        tokens = self.predicted[self.place : self.place + self.most] if self.match else []
        usual = self.match + self.right // (1 + self.wrong)
        sure = [match_confidence(usual + depth) for depth in range(len(tokens))]
        return DraftTree(self.length, tokens, range(-1, len(tokens) - 1), sure, PREDICTION) if tokens else None


class PredictionDrafter(Drafter):
    """Makes one chain for each sequence with a prediction, which belongs to that sequence alone. Takes no options."""

    name = PREDICTION
    traits = Traits(auto=True, predicted=True)

    def __init__(self, context: DrafterContext) -> None:
        if context.options:
            raise DrafterError(f"the prediction drafter takes no options, not {', '.join(context.options)}")
        self.context_length = context.context_length
        self._sessions: dict[int, _Session] = {}
        self._stale: set[int] = set()

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        length = len(opening.tokens)
        made = _Session(opening.prediction, opening.max_nodes, opening.tenant, length)
        made.take(opening.tokens[opening.prompt :])
        self._sessions[session] = made
        self._stale.add(session)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens."""
        if (known := self._sessions.get(session)) is not None:
            known.length += len(tokens)
            known.take(tokens)
            self._stale.add(session)

    def close(self, session: int) -> None:
        """Forgets the sequence and its prediction."""
        self._sessions.pop(session, None)
        self._stale.discard(session)

    def forget(self, tenant: str) -> None:
        """Drops the tenant's sessions."""
        for session in [each for each, known in self._sessions.items() if known.tenant == tenant]:
            self.close(session)

    def draft(self) -> list[tuple[int, DraftTree]]:
        """A chain for each session that has new tokens, unless its prediction ends there."""
        stale, self._stale = self._stale, set()
        chains = [(session, self._sessions[session].chain()) for session in sorted(stale)]
        return [(session, tree) for session, tree in chains if tree is not None]
