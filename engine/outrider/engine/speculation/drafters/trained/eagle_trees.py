"""Trees of an EAGLE-3 head: each round runs the head once over the likeliest nodes of all sessions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from outrider.engine.speculation.drafters.trained.head_trees import Growth, HeadTrees, Part, depths_of, tokens_of
from outrider.engine.speculation.drafters.trained.session import Session
from outrider.engine.speculation.heads.eagle import EagleHead
from torch import Tensor


class EagleTrees(HeadTrees):
    """Grows by runs of the head; the state of a node is what its children's rows take as features (EAGLE-2's trees)."""

    def __init__(self, head: EagleHead, growth: Growth, context_length: int) -> None:
        super().__init__(growth, growth.rounds, head.targets, context_length)
        self._head = head
        self._states: dict[int, list[Tensor]] = {}

    def project(self, states: Tensor) -> Tensor:
        """See `HeadTrees`."""
        return self._head.features(states)

    def read(self, parts: Sequence[tuple[Session, Tensor]]) -> None:
        """See `HeadTrees`. The last state of a session is that of its newest token."""
        ids, positions, masks = [], [], []
        for session, features in parts:
            start, count = (session.first or 0) + session.cache.length, len(features)
            ids += session.tokens[start + 1 : start + 1 + count]
            positions.append(torch.arange(start, start + count))
            masks.append(torch.ones(count, count, dtype=torch.bool).tril() if count > 1 else None)
        sessions = [session for session, _ in parts]
        starts = [session.cache.length for session in sessions]
        states = self._run(sessions, ids, [rows for _, rows in parts], torch.cat(positions), starts, masks)
        for (session, features), rows in zip(parts, states, strict=True):
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
        ranked = self.rank(asked, self._head.scores(torch.stack(rows)))
        for (session, nodes), own in zip(parts, ranked, strict=True):
            for node, guesses in zip(nodes, own, strict=True):
                session.tree.add(node, *guesses)

    def _run_nodes(self, parts: Sequence[Part]) -> None:
        ids, features, places, starts, masks = [], [], [], [], []
        for session, nodes in parts:
            tree = session.tree
            ids += tokens_of(session, nodes)
            features.append(torch.stack([self._state(session, tree.nodes[node].parent) for node in nodes]))
            places += [len(session.tokens) - 2 + depth for depth in depths_of(session, nodes)]
            starts.append(session.cache.length + len(tree.grown) - len(nodes))
            masks.append(_ancestors(session, nodes))
        positions = torch.tensor(places)
        states = self._run([session for session, _ in parts], ids, features, positions, starts, masks)
        for (session, _), rows in zip(parts, states, strict=True):
            self._states[session.number] += rows.unbind(0)

    def _run(
        self,
        sessions: Sequence[Session],
        ids: Sequence[int],
        features: Sequence[Tensor],
        positions: Tensor,
        starts: Sequence[int],
        masks: Sequence[Tensor | None],
    ) -> Sequence[Tensor]:
        """The head's states of rows of several sessions, whose keys and values go to the caches from ``starts`` on."""
        device, counts = features[0].device, [len(rows) for rows in features]
        seen = [None if mask is None else mask.to(device) for mask in masks]

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            outs = []
            rows = zip(
                sessions, starts, seen, *(torch.split(part, counts) for part in (query, key, value)), strict=True
            )
            for session, start, mask, own_query, own_key, own_value in rows:
                session.cache.write(layer, start, own_key, own_value)
                outs.append(session.cache.attend(layer, own_query, start + len(own_key), mask))
            return torch.cat(outs)

        tokens = torch.tensor(ids, device=device)
        states = self._head.run(tokens, torch.cat(list(features)), positions.to(device), attend)
        return torch.split(states, counts)

    def _state(self, session: Session, node: int) -> Tensor:
        if node < 0:
            assert session.root is not None
            return session.root
        return self._states[session.number][session.tree.nodes[node].row]


def _ancestors(session: Session, nodes: Sequence[int]) -> Tensor | None:
    """What the newest rows of a tree see of its rows: themselves and their ancestors; bool [nodes, rows]."""
    tree = session.tree
    if len(tree.grown) == 1:
        return None
    mask = torch.zeros(len(nodes), len(tree.grown), dtype=torch.bool)
    for place, node in enumerate(nodes):
        while node >= 0:
            mask[place, tree.nodes[node].row] = True
            node = tree.nodes[node].parent
    return mask
