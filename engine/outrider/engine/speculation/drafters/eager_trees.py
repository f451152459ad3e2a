"""Trees of a draft model, grown best guess first; accepted parts are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.pages.page_table import OutOfPages, PageTable
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation.drafters.drafter import Opening
from outrider.engine.speculation.drafters.vocabulary import VocabularyMap
from outrider.engine.speculation.trees.guess_tree import GuessTree
from outrider.engine.speculation.trees.proposals import confidence, own_seed, propose
from outrider.engine.speculation.trees.ranking import Rows, rank
from outrider.engine.speculation.trees.shape import TreeShape
from outrider.engine.speculation.trees.tree import DraftTree
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.kv_compact import Kept, kv_compact
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
    lacks_pages: bool = False
    resting: bool = False

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cached

    def restart(self, cached: int) -> None:
        self.cached, self.tree = cached, GuessTree()


@dataclass(frozen=True, slots=True, eq=False)
class _RunPart:
    session: _Session
    tokens: list[int]
    nodes: list[int] | None
    draws: bool

    def rows(self) -> SequenceRows:
        parents = None if self.nodes is None else self.session.tree.row_parents()
        return SequenceRows(len(self.tokens), self.session.cached, self.session.pages, parents)

    @property
    def grown(self) -> list[int]:
        """Nodes that get children; -1 is the newest token."""
        return [-1] if self.nodes is None else self.nodes

    @property
    def places(self) -> list[int]:
        """Absolute positions of the guesses below ``grown``."""
        tree, length = self.session.tree, len(self.session.tokens)
        return [length + (tree.nodes[node].depth if node >= 0 else 0) for node in self.grown]


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
        shape: TreeShape,
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
        state = self._sessions.get(session)
        if state is None:
            return
        if length != len(state.tokens):
            self.close(session)
            return
        state.resting = False
        if state.pending:
            state.tokens.extend(tokens)
            return
        rows, subtree = state.tree.descend(tokens)
        self._compact(state, rows)
        state.tokens.extend(tokens)
        if subtree is None:
            state.restart(state.cached + len(rows))
        else:
            state.cached, state.tree = state.cached + len(tokens), subtree

    @torch.inference_mode()
    def _compact(self, session: _Session, rows: list[int]) -> None:
        if rows != list(range(len(rows))):
            kv_compact(self._pool, [Kept(session.pages, session.cached, rows)])

    def rest(self, session: int) -> None:
        """Pauses drafting for a sequence until tokens are decided again."""
        if (state := self._sessions.get(session)) is not None:
            state.resting = True

    def close(self, session: int) -> None:
        """Forgets the sequence; sessions that lacked pages try again."""
        closed = self._sessions.pop(session, None)
        if closed is not None:
            self._pages.release(closed.pages)
            for other in self._sessions.values():
                other.lacks_pages = False

    @property
    def free_pages(self) -> int:
        """Pages that no session holds."""
        return self._pages.available

    @property
    def reading(self) -> bool:
        """Whether a session has decided tokens that the model has not run on."""
        return any(session.pending for session in self._active_sessions())

    @torch.inference_mode()
    def draft(self, most: int) -> list[tuple[int, DraftTree]]:
        """Runs the model once over the best nodes of all sequences; returns trees of ``most`` guesses."""
        parts = self._plan()
        improved = self._run(parts) if parts else []
        return [
            (s.number, s.tree.best(min(s.max_nodes, most), self._shape.least_value, len(s.tokens), self._name))
            for s in improved
        ]

    def _run(self, parts: list[_RunPart]) -> list[_Session]:
        batch = RaggedBatch.build([part.rows() for part in parts], self._shape.page_size, device=self._model.device)
        tokens = [token for part in parts for token in part.tokens]
        ids = torch.tensor(tokens if self._map is None else self._map.read(tokens), device=self._model.device)
        hidden = self._model.forward(ids, batch, self._pool)
        end = 0
        last: list[int] = []
        for part in parts:
            end += len(part.tokens)
            if part.nodes is None:
                part.session.cached += len(part.tokens)
            if part.draws:
                last += range(end - len(part.grown), end)
        drawing = [part for part in parts if part.draws]
        if drawing:
            self._add_children(drawing, self._model.logits(hidden if len(last) == end else hidden[last]))
        return [part.session for part in drawing]

    def _plan(self) -> list[_RunPart]:
        active = self._active_sessions()
        each = max(1, min(self._shape.rows_each, self._shape.rows // max(len(active), 1)))
        prefill, rows, parts = self._shape.prefill_rows, self._shape.rows, []
        for session in active:
            if session.pending:
                part, prefill = self._prompt_part(session, prefill)
            else:
                part = self._growth_part(session, min(each, rows))
                rows -= len(part.tokens) if part else 0
            if part is not None:
                parts.append(part)
        for part in parts:
            for node in part.nodes or ():
                part.session.tree.grow(node)
        return parts

    def _active_sessions(self) -> list[_Session]:
        ordered = sorted(self._sessions.values(), key=lambda s: s.number)
        return [s for s in ordered if not (s.lacks_pages or s.resting) and len(s.tokens) < self._context_length]

    def _prompt_part(self, session: _Session, left: int) -> tuple[_RunPart | None, int]:
        rows = min(session.pending, left)
        if rows <= 0 or not self._ensure_pages(session, session.cached + rows):
            return None, left
        tokens = session.tokens[session.cached : session.cached + rows]
        return _RunPart(session, tokens, None, rows == session.pending), left - rows

    def _growth_part(self, session: _Session, most: int) -> _RunPart | None:
        shape, tree = self._shape, session.tree
        most = min(most, shape.ahead - len(tree.grown))
        depth = self._context_length - len(session.tokens)
        nodes = tree.frontier(most, shape.least_value, depth) if most > 0 else []
        nodes = nodes[: tree.worth_growing(nodes, shape.row_cost)]
        if not nodes or not self._ensure_pages(session, session.cached + len(tree.grown) + len(nodes)):
            return None
        return _RunPart(session, [tree.nodes[node].token for node in nodes], nodes, True)

    def _ensure_pages(self, session: _Session, tokens: int) -> bool:
        try:
            while len(session.pages) * self._shape.page_size < tokens:
                session.pages.append(self._pages.allocate(session.pages[-1] if session.pages else None))
        except OutOfPages:
            self._pages.release(session.pages)
            session.pages, session.lacks_pages = [], True
            session.restart(0)
            return False
        return True

    def _add_children(self, parts: list[_RunPart], logits: Tensor) -> None:
        """Guesses below each part's nodes from logits [rows, V] of all parts' nodes."""
        logits = logits if self._map is None else self._map.spread(logits)
        own = dict(zip(parts, torch.split(logits, [len(part.grown) for part in parts]), strict=True))
        ranking = [part for part in parts if not part.session.proposes]
        for part in parts:
            if part.session.proposes:
                self._propose(part, own[part])
        if not ranking:
            return
        rows = [Rows(part.session.sampling, part.session.dice, part.places) for part in ranking]
        scores = logits if len(ranking) == len(parts) else torch.cat([own[part] for part in ranking])
        for part, guesses in zip(ranking, rank(rows, scores, self._shape.children), strict=True):
            for node, ranked in zip(part.grown, guesses, strict=True):
                part.session.tree.add(node, *ranked)

    def _propose(self, part: _RunPart, logits: Tensor) -> None:
        session = part.session
        assert session.dice is not None
        rolls = torch.stack([session.dice.at(place) for place in part.places])
        proposed = propose(session.sampling.shape(logits), rolls, self._shape.children, session.replacement)
        for node, (drawn, proposal) in zip(part.grown, proposed, strict=True):
            session.tree.add(node, drawn, [confidence(place) for place in range(len(drawn))])
            session.tree.proposals[node] = proposal
