"""Trees of a DFlash or DSpark head: one pass over a block of each session, then children by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from outrider.engine.speculation.drafters.trained.head_trees import Growth, HeadTrees, Part, depths_of, tokens_of
from outrider.engine.speculation.drafters.trained.session import Session
from outrider.engine.speculation.heads.block import BlockHead
from outrider.engine.speculation.trees.ranking import Guesses
from torch import Tensor


@dataclass(slots=True)
class _Block:
    """What a pass gave: states and scores of each depth; the memory behind each grown node, of DSpark's rnn."""

    states: Tensor
    scores: Tensor
    guesses: list[Guesses] = field(default_factory=list)
    memory: dict[int, Tensor] = field(default_factory=dict)


class BlockTrees(HeadTrees):
    """DFlash guesses each depth by itself; DSpark corrects a node's children by the node's token."""

    def __init__(self, head: BlockHead, growth: Growth, context_length: int) -> None:
        super().__init__(growth, head.shape.guesses, head.targets, context_length)
        self._head = head
        self._blocks: dict[int, _Block] = {}

    def project(self, states: Tensor) -> Tensor:
        """See `HeadTrees`."""
        return self._head.context(states)

    def read(self, parts: Sequence[tuple[Session, Tensor]]) -> None:
        """See `HeadTrees`."""
        counts = [len(features) for _, features in parts]
        starts = [(session.first or 0) + session.cache.length for session, _ in parts]
        rows = torch.cat([features for _, features in parts])
        positions = [torch.arange(start, start + count) for start, count in zip(starts, counts, strict=True)]
        for layer, (keys, values) in enumerate(self._head.context_keys(rows, torch.cat(positions).to(rows.device))):
            for (session, _), key, value in zip(
                parts, torch.split(keys, counts), torch.split(values, counts), strict=True
            ):
                session.cache.write(layer, session.cache.length, key, value)
        for (session, _), count in zip(parts, counts, strict=True):
            session.cache.length += count

    def begin(self, sessions: Sequence[Session]) -> None:
        """See `HeadTrees`."""
        head, device = self._head, self._head.tensors["norm.weight"].device
        places = torch.tensor([len(session.tokens) - 1 for session in sessions], device=device)
        anchors = torch.tensor([session.tokens[-1] for session in sessions], device=device)
        positions = places[:, None] + torch.arange(head.shape.block_size, device=device)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            outs = []
            for session, own_query, own_key, own_value in zip(sessions, query, key, value, strict=True):
                cache = session.cache
                cache.write(layer, cache.length, own_key, own_value)
                outs.append(cache.attend(layer, own_query, cache.length + len(own_key), None))
            return torch.stack(outs)

        depth = min(self._growth.rounds, head.shape.guesses)
        states = head.guessing(head.run(head.block(anchors), positions, attend))[:, :depth]
        scores = head.output(states.flatten(0, 1)).view(*states.shape[:2], -1)
        rows = zip(sessions, states, scores, strict=True)
        self._blocks = {session.number: _Block(*own) for session, *own in rows}
        if not head.shape.markov_rank:
            ranked = self.rank([(session, range(depth)) for session in sessions], scores.flatten(0, 1))
            for session, guesses in zip(sessions, ranked, strict=True):
                self._blocks[session.number].guesses = guesses

    def expand(self, parts: Sequence[Part]) -> None:
        """See `HeadTrees`."""
        if self._head.shape.markov_rank:
            self._expand_corrected(parts)
            return
        for session, nodes in parts:
            guesses = self._blocks[session.number].guesses
            for node, depth in zip(nodes, depths_of(session, nodes), strict=True):
                session.tree.add(node, *guesses[depth])

    def _expand_corrected(self, parts: Sequence[Part]) -> None:
        head = self._head
        depths = [depths_of(session, nodes) for session, nodes in parts]
        blocks = [self._blocks[session.number] for session, _ in parts]
        states = torch.cat([block.states[own] for block, own in zip(blocks, depths, strict=True)])
        base = torch.cat([block.scores[own] for block, own in zip(blocks, depths, strict=True)])
        ids = [token for session, nodes in parts for token in tokens_of(session, nodes)]
        previous = torch.tensor(ids, device=states.device)
        memory = self._memory(parts, blocks, states)
        added, memory = head.correct(previous, states, memory)
        odds: list[float] | None = None
        if head.shape.confidence:
            odds = head.confidence(previous, states).sigmoid().tolist()
        asked = [(session, own) for (session, _), own in zip(parts, depths, strict=True)]
        ranked = self.rank(asked, base + added)
        row = 0
        for (session, nodes), block, own in zip(parts, blocks, ranked, strict=True):
            for node, (tokens, shares) in zip(nodes, own, strict=True):
                session.tree.add(node, tokens, shares if odds is None else _judged(shares, odds[row]))
                block.memory[node] = memory[row]
                row += 1

    def _memory(self, parts: Sequence[Part], blocks: Sequence[_Block], states: Tensor) -> Tensor:
        memory = self._head.first_memory(states)
        if self._head.shape.markov_kind != "rnn" or all(nodes == [-1] for _, nodes in parts):
            return memory
        found = [
            block.memory[session.tree.nodes[node].parent]
            for (session, nodes), block in zip(parts, blocks, strict=True)
            for node in nodes
        ]
        return torch.stack(found)


def _judged(shares: Sequence[float], likely: float) -> list[float]:
    """Shares of a node's children if the first is right with the probability ``likely``; the others share the rest."""
    first = min(shares[0], 1 - 1e-6)
    return [likely, *(share * (1 - likely) / (1 - first) for share in shares[1:])]
