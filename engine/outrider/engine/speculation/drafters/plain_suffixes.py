"""Suffix guesses for many sequences in plain Python; the reference for `outrider.native.suffixes`.

Follows SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975), over suffix automata.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.engine.speculation.drafters.matches import match_confidence
from outrider.engine.speculation.drafters.suffix_automaton import SuffixAutomaton
from outrider.native.suffixes import SuffixShape
from outrider.native.trees import NativeTree

_END = -1
_TAIL = 32
_CHILDREN = 4
_TOKENS_A_ROUND = 1024


class _Memory:
    """A tenant's recent answers in two automata; when the young one is full, the old one is dropped."""

    def __init__(self, tokens: int) -> None:
        self._each = max(tokens // 2, 1)
        self.automata = [SuffixAutomaton()]

    def append(self, token: int) -> None:
        if len(self.automata[-1]) >= self._each:
            self.automata = [self.automata[-1], SuffixAutomaton()]
        self.automata[-1].append(token)


@dataclass(slots=True)
class _Session:
    tokens: list[int]
    prompt: int
    tenant: str
    most: int
    own: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    places: dict[SuffixAutomaton, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def behind(self) -> int:
        return len(self.tokens) - len(self.own)

    def absorb(self, most: int) -> int:
        """Adds up to ``most`` tokens to the automaton; returns their number."""
        added = self.tokens[len(self.own) :][:most]
        for token in added:
            self.own.append(token)
        return len(added)

    def matches(self, memory: _Memory | None) -> Iterator[tuple[SuffixAutomaton, int, int]]:
        """Matches of the sequence's end, in its own automaton first: automaton, state, length of the match."""
        yield (self.own, *self.own.repeated())
        automata = memory.automata if memory else []
        self.places = {automaton: self._place(automaton) for automaton in automata}
        for automaton, (state, length, _) in self.places.items():
            yield automaton, state, length

    def _place(self, automaton: SuffixAutomaton) -> tuple[int, int, int]:
        start = max(len(self.tokens) - _TAIL, 0)
        state, length, read = self.places.get(automaton, (automaton.ROOT, 0, start))
        for token in self.tokens[read:]:
            state, length = automaton.step(state, length, token)
        return state, length, len(self.tokens)


class PlainSuffixes:
    """Makes one tree for each sequence with new tokens. One thread makes all calls."""

    def __init__(self, shape: SuffixShape) -> None:
        self._shape = shape
        self._sessions: dict[int, _Session] = {}
        self._stale: dict[int, None] = {}
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        self._answers: deque[tuple[str, deque[int]]] = deque()

    def open(self, number: int, tokens: Sequence[int], prompt: int, tenant: str, most: int) -> None:
        """Starts a session; replaces a session of the same number.

        Args:
            number: number of the session.
            tokens: prompt and answer so far.
            prompt: number of ``tokens`` that are the prompt.
            tenant: tenant of the request.
            most: most nodes of a tree.
        """
        self._sessions[number] = _Session(list(tokens), prompt, tenant, min(self._shape.nodes, most))
        self._stale[number] = None

    def commit(self, number: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens; ignores an unknown session."""
        if number in self._sessions:
            self._sessions[number].tokens.extend(tokens)
            self._stale[number] = None

    def close(self, number: int) -> None:
        """Ends a session; its answer is kept for the tenant's later requests. Ignores an unknown session."""
        self._stale.pop(number, None)
        if (closed := self._sessions.pop(number, None)) is not None:
            self._answers.append((closed.tenant, deque([*closed.tokens[closed.prompt :], _END])))

    def forget(self, tenant: str) -> None:
        """Drops the tenant's sessions and answers."""
        for number in [number for number, session in self._sessions.items() if session.tenant == tenant]:
            del self._sessions[number]
            self._stale.pop(number, None)
        self._answers = deque(answer for answer in self._answers if answer[0] != tenant)
        self._memories.pop(tenant, None)

    def draft(self) -> list[NativeTree]:
        """Adds a bounded number of new tokens to automata; returns trees of sessions that are up to date."""
        budget, trees = _TOKENS_A_ROUND, []
        for number in list(self._stale):
            session = self._sessions[number]
            budget -= session.absorb(budget)
            if not session.behind:
                del self._stale[number]
                trees.append(self._tree(number, session))
        self._remember(budget)
        return [tree for tree in trees if tree.tokens]

    def _remember(self, most: int) -> None:
        while most > 0 and self._answers:
            tenant, answer = self._answers[0]
            memory = self._memory(tenant)
            count = min(most, len(answer))
            for _ in range(count):
                memory.append(answer.popleft())
            if not answer:
                self._answers.popleft()
            most -= count

    def _memory(self, tenant: str) -> _Memory:
        if tenant not in self._memories:
            self._memories[tenant] = _Memory(self._shape.tokens)
            while len(self._memories) > self._shape.tenants:
                self._memories.popitem(last=False)
        self._memories.move_to_end(tenant)
        return self._memories[tenant]

    def _tree(self, number: int, session: _Session) -> NativeTree:
        growth = _Growth()
        for automaton, state, length in session.matches(self._memories.get(session.tenant)):
            if length >= self._shape.least_match:
                growth.add_followers(automaton, state, length, -1, 1.0)
        return NativeTree(number, len(session.tokens), *growth.grow(session.most))


class _Growth:
    """Builds a tree from followers in all automata, likeliest first."""

    def __init__(self) -> None:
        self._open: list[tuple[float, int, int, int, float, SuffixAutomaton, int, int]] = []
        self._order = itertools.count()

    def add_followers(self, automaton: SuffixAutomaton, state: int, length: int, parent: int, value: float) -> None:
        """Adds the followers of a run of ``length`` tokens that ends at ``parent``, whose value is ``value``."""
        followers, total = automaton.followers(state, _CHILDREN)
        for count, token, after in followers:
            if token != _END and count:
                confidence = count / total * match_confidence(length)
                entry = (
                    -value * confidence,
                    next(self._order),
                    parent,
                    token,
                    confidence,
                    automaton,
                    after,
                    length + 1,
                )
                heapq.heappush(self._open, entry)

    def grow(self, nodes: int) -> tuple[list[int], list[int], list[float]]:
        """The ``nodes`` most valuable guesses, their parents and confidences; equal guesses of automata become one."""
        tokens: list[int] = []
        parents: list[int] = []
        confidences: list[float] = []
        places: dict[tuple[int, int], int] = {}
        while self._open and len(tokens) < nodes:
            value, _, parent, token, confidence, automaton, state, match = heapq.heappop(self._open)
            node = places.setdefault((parent, token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(parent)
                confidences.append(confidence)
            self.add_followers(automaton, state, match, node, -value)
        return tokens, parents, confidences
