"""Guesses that a sequence goes on as its latest tokens did before, in itself or in the tenant's recent answers.

In the manner of SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975), over suffix automata. It needs no model, so it
runs in the verifier as well as in a proposer.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.models.speculation.drafter import DrafterContext, DrafterError, Opening
from outrider.models.speculation.suffix_automaton import SuffixAutomaton
from outrider.models.speculation.tree import DraftTree

_END = -1
_TAIL = 32
_CHILDREN = 4
_A_ROUND = 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator may set.

    Attributes:
        nodes: most guesses of a tree.
        least_match: tokens that must have stood there before.
        tokens: of a tenant's answers that are remembered, about, at half a kilobyte each; the oldest are forgotten.
        tenants: that are remembered; the longest silent is forgotten.
    """

    nodes: int = 16
    least_match: int = 2
    tokens: int = 16384
    tenants: int = 32


class _Memory:
    """A tenant's recent answers in two automata: when the young one is full, it takes the place of the old."""

    def __init__(self, tokens: int) -> None:
        self._each = max(tokens // 2, 1)
        self.automata = [SuffixAutomaton()]

    def append(self, token: int) -> None:
        if len(self.automata[-1]) >= self._each:
            self.automata = [self.automata[-1], SuffixAutomaton()]
        self.automata[-1].append(token)


@dataclass(slots=True)
class _Session:
    opening: Opening
    tokens: list[int]
    own: SuffixAutomaton = field(default_factory=SuffixAutomaton)
    places: dict[SuffixAutomaton, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def behind(self) -> int:
        return len(self.tokens) - len(self.own)

    def absorb(self, most: int) -> int:
        """Takes in up to ``most`` tokens; how many it took."""
        taken = self.tokens[len(self.own) :][:most]
        for token in taken:
            self.own.append(token)
        return len(taken)

    def matches(self, memory: _Memory | None) -> Iterator[tuple[SuffixAutomaton, int, int]]:
        """Automata that know the sequence's latest tokens, its own first: automaton, state, length of the match."""
        yield (self.own, *self.own.repeated())
        automata = memory.automata if memory else []
        self.places = {known: self._place(known) for known in automata}
        for known, (state, length, _) in self.places.items():
            yield known, state, length

    def _place(self, known: SuffixAutomaton) -> tuple[int, int, int]:
        start = max(len(self.tokens) - _TAIL, 0)
        state, length, read = self.places.get(known, (known.ROOT, 0, start))
        for token in self.tokens[read:]:
            state, length = known.step(state, length, token)
        return state, length, len(self.tokens)


class SuffixDrafter:
    """One tree a sequence, its confidences from counts. Options: those of `Options`."""

    name = "suffix"

    def __init__(self, context: DrafterContext) -> None:
        try:
            self._options = Options(**context.options)
        except TypeError:
            allowed = ", ".join(Options.__dataclass_fields__)
            raise DrafterError(
                f"the suffix drafter's options are {allowed}; not {', '.join(context.options)}"
            ) from None
        self.context_length = context.context_length
        self._sessions: dict[int, _Session] = {}
        self._stale: dict[int, None] = {}
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        self._answers: deque[tuple[str, Iterator[int]]] = deque()

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self._sessions[session] = _Session(opening, list(opening.tokens))
        self._stale[session] = None

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Moves on behind what the target decided."""
        if session in self._sessions:
            self._sessions[session].tokens.extend(tokens)
            self._stale[session] = None

    def close(self, session: int) -> None:
        """Forgets the sequence, and remembers its answer for the tenant's later ones."""
        self._stale.pop(session, None)
        if (closed := self._sessions.pop(session, None)) is not None:
            answer = closed.tokens[closed.opening.prompt :]
            self._answers.append((closed.opening.tenant, iter([*answer, _END])))

    def draft(self) -> list[tuple[int, DraftTree]]:
        """Takes in what is new, a bounded number of tokens, and guesses for each sequence that has moved on."""
        left, done = _A_ROUND, []
        for number in list(self._stale):
            session = self._sessions[number]
            left -= session.absorb(left)
            if not session.behind:
                del self._stale[number]
                done.append((number, self._tree(session)))
        self._remember(left)
        return [(number, tree) for number, tree in done if tree.tokens]

    def _remember(self, most: int) -> None:
        while most > 0 and self._answers:
            tenant, answer = self._answers[0]
            memory = self._memory(tenant)
            taken = list(itertools.islice(answer, most))
            for token in taken:
                memory.append(token)
            if len(taken) < most:
                self._answers.popleft()
            most -= len(taken)

    def _memory(self, tenant: str) -> _Memory:
        if tenant not in self._memories:
            self._memories[tenant] = _Memory(self._options.tokens)
            while len(self._memories) > self._options.tenants:
                self._memories.popitem(last=False)
        self._memories.move_to_end(tenant)
        return self._memories[tenant]

    def _tree(self, session: _Session) -> DraftTree:
        growth = _Growth()
        for automaton, state, length in session.matches(self._memories.get(session.opening.tenant)):
            if length >= self._options.least_match:
                growth.look(automaton, state, length, -1, 1.0)
        return growth.grow(len(session.tokens), min(self._options.nodes, session.opening.max_nodes), self.name)


class _Growth:
    """A tree under construction: of all that may follow in any automaton, the likeliest first."""

    def __init__(self) -> None:
        self._open: list[tuple[float, int, int, int, float, SuffixAutomaton, int, int]] = []
        self._order = itertools.count()

    def look(self, automaton: SuffixAutomaton, state: int, length: int, parent: int, value: float) -> None:
        """Considers what followed a run of ``length`` tokens that ends at ``parent``, itself worth ``value``."""
        followers, total = automaton.followers(state, _CHILDREN)
        for count, token, after in followers:
            if token != _END and count:
                sure = count / (total + 0.5) * length / (length + 1)
                entry = (-value * sure, next(self._order), parent, token, sure, automaton, after, length + 1)
                heapq.heappush(self._open, entry)

    def grow(self, length: int, nodes: int, drafter: str) -> DraftTree:
        """The ``nodes`` most valuable guesses behind ``length`` tokens; one that two automata have appears once."""
        tokens: list[int] = []
        parents: list[int] = []
        confidences: list[float] = []
        places: dict[tuple[int, int], int] = {}
        while self._open and len(tokens) < nodes:
            value, _, parent, token, sure, automaton, state, match = heapq.heappop(self._open)
            node = places.setdefault((parent, token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(parent)
                confidences.append(sure)
            self.look(automaton, state, match, node, -value)
        return DraftTree(length, tokens, parents, confidences, drafter)
