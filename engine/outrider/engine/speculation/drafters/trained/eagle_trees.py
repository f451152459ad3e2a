"""Trees of an EAGLE-3 head: each round runs the head once over the likeliest nodes of all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from outrider.engine.speculation.drafters.trained.head_trees import Growth, HeadTrees, Part, depths_of, tokens_of
from outrider.engine.speculation.drafters.trained.session import Session
from outrider.engine.speculation.heads.compiled import CompiledEagle
from outrider.engine.speculation.heads.eagle import EagleHead
from outrider.kernels.batch import SequenceRows
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows of a session in one run of the head.

    Attributes:
        ids: the token behind each row's features.
        features: [rows, hidden_size].
        nodes: those of the session's tree that the rows stand for, the newest of the grown ones; None for decided
            tokens.
    """

    session: Session
    ids: list[int]
    features: Tensor
    nodes: Sequence[int] | None = None

    @property
    def start(self) -> int:
        """Place in the cache of the first row."""
        grown = 0 if self.nodes is None else len(self.session.tree.grown) - len(self.nodes)
        return self.session.cache.length + grown

    def positions(self) -> Sequence[int]:
        """Position of each row's state."""
        if self.nodes is None:
            start = (self.session.first or 0) + self.start
            return range(start, start + len(self.ids))
        return [len(self.session.tokens) - 2 + depth for depth in depths_of(self.session, self.nodes)]

    def seen(self) -> Tensor | None:
        """What rows see of those behind the cache, themselves and their ancestors: bool [rows, seen]; None for all."""
        tree, count = self.session.tree, len(self.ids)
        if self.nodes is None:
            return torch.ones(count, count, dtype=torch.bool).tril() if count > 1 else None
        if len(tree.grown) == 1:
            return None
        mask = torch.zeros(count, len(tree.grown), dtype=torch.bool)
        for place, node in enumerate(self.nodes):
            while node >= 0:
                mask[place, tree.nodes[node].row] = True
                node = tree.nodes[node].parent
        return mask


class EagleTrees(HeadTrees):
    """Grows by runs of the head; the state of a node is what its children's rows take as features (EAGLE-2's trees)."""

    def __init__(self, head: EagleHead, growth: Growth, context_length: int) -> None:
        super().__init__(growth, growth.rounds, head.targets, context_length)
        self._head = head
        self._states: dict[int, list[Tensor]] = {}  # of grown nodes, in their order

    def project(self, states: Tensor) -> Tensor:
        """See `HeadTrees`."""
        return self._head.features(states)

    def read(self, parts: Sequence[tuple[Session, Tensor]]) -> None:
        """See `HeadTrees`. The last state of a session is that of its newest token."""
        runs = []
        for session, features in parts:
            start = (session.first or 0) + session.cache.length
            runs.append(Run(session, session.tokens[start + 1 : start + 1 + len(features)], features))
        for (session, features), rows in zip(parts, self._run(runs), strict=True):
            session.cache.length += len(features)
            session.root = rows[-1]

    def begin(self, sessions: Sequence[Session]) -> None:
        """See `HeadTrees`."""
        self._states = {session.number: [] for session in sessions}

    def expand(self, parts: Sequence[Part]) -> None:
        """See `HeadTrees`."""
        grown = [(session, nodes) for session, nodes in parts if nodes != [-1]]
        if grown:
            self._run_nodes(grown)
        rows = [self._state(session, node) for session, nodes in parts for node in nodes]
        asked = [(session, depths_of(session, nodes)) for session, nodes in parts]
        ranked = self.rank(asked, self._scores(torch.stack(rows)))
        for (session, nodes), own in zip(parts, ranked, strict=True):
            for node, guesses in zip(nodes, own, strict=True):
                session.tree.add(node, *guesses)

    def _run_nodes(self, parts: Sequence[Part]) -> None:
        runs = []
        for session, nodes in parts:
            above = [self._state(session, session.tree.nodes[node].parent) for node in nodes]
            runs.append(Run(session, tokens_of(session, nodes), self._features(torch.stack(above)), nodes))
        for (session, _), rows in zip(parts, self._run(runs), strict=True):
            self._states[session.number] += rows.unbind(0)

    def _run(self, runs: Sequence[Run]) -> Sequence[Tensor]:
        """The head's states of rows of several sessions, whose keys and values go to the caches."""
        device, counts = runs[0].features.device, [len(run.features) for run in runs]
        seen = [None if (mask := run.seen()) is None else mask.to(device) for run in runs]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            outs = []
            rows = zip(runs, seen, *(torch.split(part, counts) for part in (query, key, value)), strict=True)
            for run, mask, own_query, own_key, own_value in rows:
                cache, start = run.session.cache, run.start
                cache.write(layer, start, own_key, own_value)
                outs.append(cache.attend(layer, own_query, start + len(own_key), mask))
            return torch.cat(outs)

        tokens = torch.tensor([token for run in runs for token in run.ids], device=device)
        positions = torch.tensor([place for run in runs for place in run.positions()], device=device)
        states = self._head.run(tokens, torch.cat([run.features for run in runs]), positions, attend)
        return torch.split(states, counts)

    def _features(self, states: Tensor) -> Tensor:
        """Features of the rows behind ``states``."""
        return states

    def _scores(self, states: Tensor) -> Tensor:
        return self._head.scores(states)

    def _state(self, session: Session, node: int) -> Tensor:
        if node < 0:
            assert session.root is not None
            return session.root
        return self._states[session.number][session.tree.nodes[node].row]


class CompiledEagleTrees(EagleTrees):
    """The same where the head's layers run on the compiled decoder, whose pages take the place of sessions' caches.

    Attributes:
        compiled: the layers.
    """

    def __init__(self, head: EagleHead, compiled: CompiledEagle, growth: Growth, context_length: int) -> None:
        super().__init__(head, growth, context_length)
        self.compiled = compiled
        self._pages: dict[int, list[int]] = {}

    def close(self, session: Session) -> None:
        """See `HeadTrees`."""
        self.compiled.release(self._pages.pop(session.number, []))

    def _features(self, states: Tensor) -> Tensor:
        return states[:, int(self._head.shape.norm_output)]

    def _scores(self, states: Tensor) -> Tensor:
        return self._head.output(states[:, 1])

    def _run(self, runs: Sequence[Run]) -> Sequence[Tensor]:
        sequences = []
        for run in runs:
            session, count = run.session, len(run.ids)
            pages = self._pages.setdefault(session.number, [])
            self.compiled.reserve(pages, run.start + count)
            parents = None if run.nodes is None else session.tree.row_parents()
            sequences.append(SequenceRows(count, session.cache.length, pages, parents))
        ids, features = [token for run in runs for token in run.ids], torch.cat([run.features for run in runs])
        return torch.split(self.compiled.run(ids, sequences, features), [len(run.ids) for run in runs])
