"""Trees of a DFlash or DSpark head: one pass over a block of each session, then children by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from outrider.engine.speculation.drafters.trained.head_trees import Growth, HeadTrees, Part, depths_of, tokens_of
from outrider.engine.speculation.drafters.trained.session import Session
from outrider.engine.speculation.heads.block import BlockHead
from torch import Tensor


@dataclass(slots=True)
class _Block:
    """What a pass gave: states and scores of each depth; the memory behind each grown node, of DSpark's rnn."""

    states: Tensor
    scores: Tensor
    tokens: list[list[int]] = field(default_factory=list)
    shares: list[list[float]] = field(default_factory=list)
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
            for session in sessions:
                block = self._blocks[session.number]
                block.tokens, block.shares = self.rank(session, range(depth), block.scores)

    def expand(self, parts: Sequence[Part]) -> None:
        """See `HeadTrees`."""
        if self._head.shape.markov_rank:
            self._expand_corrected(parts)
            return
        for session, nodes in parts:
            block = self._blocks[session.number]
            for node, depth in zip(nodes, depths_of(session, nodes), strict=True):
                session.tree.add(node, block.tokens[depth], block.shares[depth])

    def _expand_corrected(self, parts: Sequence[Part]) -> None:
        head, counts = self._head, [len(nodes) for _, nodes in parts]
        depths = [depths_of(session, nodes) for session, nodes in parts]
        blocks = [self._blocks[session.number] for session, _ in parts]
        states = torch.cat([block.states[own] for block, own in zip(blocks, depths, strict=True)])
        base = torch.cat([block.scores[own] for block, own in zip(blocks, depths, strict=True)])
        ids = [token for session, nodes in parts for token in tokens_of(session, nodes)]
        previous = torch.tensor(ids, device=states.device)
        memory = self._memory(parts, blocks, states)
        added, memory = head.correct(previous, states, memory)
        odds = (
            torch.split(head.confidence(previous, states).sigmoid(), counts)
            if head.shape.confidence
            else [None] * len(parts)
        )
        split = zip(
            parts, blocks, depths, torch.split(base + added, counts), torch.split(memory, counts), odds, strict=True
        )
        for (session, nodes), block, own, scores, after, likely in split:
            tokens, shares = self.rank(session, own, scores)
            if likely is not None:
                shares = [_judged(row, float(odd)) for row, odd in zip(shares, likely, strict=True)]
            for node, children, confidences, state in zip(nodes, tokens, shares, after, strict=True):
                session.tree.add(node, children, confidences)
                block.memory[node] = state

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
