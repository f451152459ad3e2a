"""Trees of a draft model, grown best guess first; accepted parts are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.kv_compact import kv_compact
from outrider.kernels.race_sample import race_topk
from outrider.models.llama import LlamaModel
from outrider.models.pages import OutOfPages, PageTable
from outrider.models.sampling import Dice, Sampling
from outrider.models.speculation.drafter import Opening
from outrider.models.speculation.guess_tree import GuessTree
from outrider.models.speculation.prices import FREE, DraftPrice, RunTime
from outrider.models.speculation.proposals import confidence, own_seed, propose
from outrider.models.speculation.shape import Shape
from outrider.models.speculation.tree import DraftTree
from outrider.models.speculation.vocabulary import VocabularyMap
from torch import Tensor


@dataclass(slots=True, eq=False)
class _Session:
    number: int
    tokens: list[int]
    sampling: Sampling
    dice: Dice | None
    max_nodes: int
    proposes: bool = False
    replacement: bool = False
    cached: int = 0
    pages: list[int] = field(default_factory=list)
    tree: GuessTree = field(default_factory=GuessTree)
    muted: bool = False
    resting: bool = False

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cached

    def restart(self, cached: int) -> None:
        self.cached, self.tree = cached, GuessTree()


@dataclass(frozen=True, slots=True)
class _Work:
    session: _Session
    tokens: list[int]
    nodes: list[int] | None
    draws: bool

    def rows(self) -> SequenceRows:
        parents = None if self.nodes is None else self.session.tree.row_parents()
        return SequenceRows(len(self.tokens), self.session.cached, self.session.pages, parents)


class EagerTrees:
    """Grows trees run by run of the model, on any device, over any vocabulary, for any rule of acceptance.

    Args:
        model: the draft model.
        shape: how trees grow.
        vocabulary: size of the target's vocabulary.
        table: maps the draft model's tokens to the target's; None for a common vocabulary.
        context_length: longest sequence to guess for, in tokens.
        name: name of the drafter.
    """

    def __init__(
        self,
        model: LlamaModel,
        shape: Shape,
        vocabulary: int,
        table: VocabularyMap | None,
        context_length: int,
        name: str,
    ) -> None:
        self._model, self._shape, self._vocabulary, self._map = model, shape, vocabulary, table
        self._context_length, self._name = context_length, name
        self._pool = model.new_pool(shape.pages, shape.page_size)
        self._pages = PageTable(shape.pages)
        self._sessions: dict[int, _Session] = {}
        self._growing = RunTime()

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence."""
        self.close(session)
        sampling = opening.sampling
        proposes = opening.proposes and not sampling.greedy
        seed = own_seed(sampling.seed) if proposes else sampling.seed
        dice = None if sampling.greedy else Dice(seed, self._vocabulary, self._model.device)
        tokens = list(opening.tokens)
        self._sessions[session] = _Session(
            session, tokens, sampling, dice, opening.max_nodes, proposes, opening.replacement
        )

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens; keeps the part of the tree below them."""
        opened = self._sessions.get(session)
        if opened is None:
            return
        if length != len(opened.tokens):
            self.close(session)
            return
        opened.resting = False
        if opened.pending:
            opened.tokens.extend(tokens)
            return
        rows, rest = opened.tree.descend(tokens)
        self._keep(opened, rows)
        opened.tokens.extend(tokens)
        if rest is None:
            opened.restart(opened.cached + len(rows))
        else:
            opened.cached, opened.tree = opened.cached + len(tokens), rest

    @torch.inference_mode()
    def _keep(self, session: _Session, rows: list[int]) -> None:
        if rows != list(range(len(rows))):
            kv_compact(self._pool, session.pages, session.cached, rows)

    def rest(self, session: int) -> None:
        """Pauses drafting for a sequence until tokens are decided again."""
        if (opened := self._sessions.get(session)) is not None:
            opened.resting = True

    def close(self, session: int) -> None:
        """Forgets the sequence; sessions that lacked pages try again."""
        closed = self._sessions.pop(session, None)
        if closed is not None:
            self._pages.release(closed.pages)
            for other in self._sessions.values():
                other.muted = False

    @property
    def free_pages(self) -> int:
        """Pages that no session holds."""
        return self._pages.available

    @property
    def reading(self) -> bool:
        """Whether a session has decided tokens that the model has not run on."""
        return any(session.pending for session in self._live())

    @torch.inference_mode()
    def draft(self, most: int, price: DraftPrice = FREE) -> list[tuple[int, DraftTree]]:
        """Runs the model once over the best nodes of all sequences, if that pays; returns trees of ``most`` guesses."""
        works = self._plan(price)
        if not works:
            return []
        began = perf_counter()
        improved = self._run(works)
        if all(work.nodes is not None for work in works):
            self._growing.learn(perf_counter() - began)
        return [
            (s.number, s.tree.best(min(s.max_nodes, most), self._shape.least_value, len(s.tokens), self._name))
            for s in improved
        ]

    def _run(self, works: list[_Work]) -> list[_Session]:
        batch = RaggedBatch.build([work.rows() for work in works], self._shape.page_size, device=self._model.device)
        tokens = [token for work in works for token in work.tokens]
        ids = torch.tensor(tokens if self._map is None else self._map.read(tokens), device=self._model.device)
        hidden = self._model.forward(ids, batch, self._pool)
        start = 0
        improved = []
        for work in works:
            rows = hidden[start : start + len(work.tokens)]
            start += len(work.tokens)
            if work.nodes is None:
                work.session.cached += len(work.tokens)
            if work.draws:
                self._hang(work, rows)
                improved.append(work.session)
        return improved

    def _plan(self, price: DraftPrice) -> list[_Work]:
        live = self._live()
        each = max(1, min(self._shape.rows_each, self._shape.rows // max(len(live), 1)))
        prefill, rows, works = self._shape.prefill_rows, self._shape.rows, []
        for session in live:
            if session.pending:
                work, prefill = self._chunk(session, prefill)
            else:
                work = self._growth(session, min(each, rows), max(self._shape.least_value, price.guess))
                rows -= len(work.tokens) if work else 0
            if work is not None:
                works.append(work)
        if not self._pays(works, price):
            return []
        for work in works:
            for node in work.nodes or ():
                work.session.tree.grow(node)
        return works

    def _live(self) -> list[_Session]:
        ordered = sorted(self._sessions.values(), key=lambda s: s.number)
        return [s for s in ordered if not (s.muted or s.resting) and len(s.tokens) < self._context_length]

    def _pays(self, works: list[_Work], price: DraftPrice) -> bool:
        """Whether the nodes' probabilities sum up to the price of a run; runs with decided tokens always pay."""
        promised = 0.0
        for work in works:
            if work.nodes is None:
                return True
            promised += sum(work.session.tree.nodes[node].value for node in work.nodes)
        return promised >= price.second * self._growing.seconds

    def _chunk(self, session: _Session, left: int) -> tuple[_Work | None, int]:
        rows = min(session.pending, left)
        if rows <= 0 or not self._room(session, session.cached + rows):
            return None, left
        tokens = session.tokens[session.cached : session.cached + rows]
        return _Work(session, tokens, None, rows == session.pending), left - rows

    def _growth(self, session: _Session, most: int, least: float) -> _Work | None:
        shape, tree = self._shape, session.tree
        most = min(most, shape.ahead - len(tree.grown))
        depth = self._context_length - len(session.tokens)
        nodes = tree.frontier(most, least, depth) if most > 0 else []
        nodes = nodes[: tree.worth_growing(nodes, shape.row_cost)]
        if not nodes or not self._room(session, session.cached + len(tree.grown) + len(nodes)):
            return None
        return _Work(session, [tree.nodes[node].token for node in nodes], nodes, True)

    def _room(self, session: _Session, tokens: int) -> bool:
        try:
            while len(session.pages) * self._shape.page_size < tokens:
                session.pages.append(self._pages.allocate(session.pages[-1] if session.pages else None))
        except OutOfPages:
            self._pages.release(session.pages)
            session.pages, session.muted = [], True
            session.restart(0)
            return False
        return True

    def _hang(self, work: _Work, hidden: Tensor) -> None:
        session = work.session
        nodes = [-1] if work.nodes is None else work.nodes
        logits = self._model.logits(hidden[-len(nodes) :])
        logits = session.sampling.shape(logits if self._map is None else self._map.spread(logits))
        rolls = None
        if session.dice is not None:
            depths = [session.tree.nodes[node].depth if node >= 0 else 0 for node in nodes]
            rolls = torch.stack([session.dice.at(len(session.tokens) + depth) for depth in depths])
        if session.proposes and rolls is not None:
            proposed = propose(logits, rolls, self._shape.children, session.replacement)
            for node, (drawn, proposal) in zip(nodes, proposed, strict=True):
                session.tree.add(node, drawn, [confidence(place) for place in range(len(drawn))])
                session.tree.proposals[node] = proposal
            return
        tokens, confidences = race_topk(logits, rolls, min(self._shape.children, logits.shape[-1]))
        for node, guesses, sure in zip(nodes, tokens.tolist(), confidences.tolist(), strict=True):
            session.tree.add(node, guesses, sure)
