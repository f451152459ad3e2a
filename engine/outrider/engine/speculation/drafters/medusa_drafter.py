"""The Medusa drafter: heads on the target's last hidden state guess the next tokens independently.

Cai et al. 2024 (arXiv 2401.10774). For a sampling request, the dice of a guess's position rank each head's guesses.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from outrider.engine.errors import ModelError
from outrider.engine.sampling import Dice
from outrider.engine.speculation.drafters.drafter import Drafter, DrafterContext, DrafterError, Opening, Traits
from outrider.engine.speculation.drafters.medusa_heads import MedusaHeads
from outrider.engine.speculation.drafters.weights import quantization_of
from outrider.engine.speculation.trees.ranking import Rows, rank
from outrider.engine.speculation.trees.tree import DraftTree
from torch import Tensor


@dataclass(frozen=True, slots=True)
class MedusaShape:
    """Size of trees: ``children`` guesses of each head, and the ``nodes`` likeliest nodes of their paths."""

    children: int = 6
    nodes: int = 24


@dataclass(slots=True)
class _Session:
    opening: Opening
    length: int
    dice: Dice | None
    hidden: Tensor | None = None


class MedusaDrafter(Drafter):
    """Makes one tree for each sequence and step, from Medusa-1 heads.

    Options: ``children``, ``nodes`` and ``quantization`` of output layers (see `quantization_of`).
    """

    name = "medusa"
    traits = Traits(target=True, whole=False, shipped="medusa")

    def __init__(self, context: DrafterContext) -> None:
        target = context.needed_target(self.name)
        if context.model is None:
            raise DrafterError("the medusa drafter needs heads: give their directory as its option model")
        options = dict(context.options)
        quantization = quantization_of(options, "int4")
        try:
            self._shape = MedusaShape(**options)
        except TypeError:
            raise DrafterError(
                f"the medusa drafter's options are model, children, nodes, quantization; not {', '.join(options)}"
            ) from None
        try:
            self.heads = MedusaHeads.load(context.model, target, quantization)
        except ModelError as error:
            raise DrafterError(str(error)) from None
        self.context_length = context.context_length
        self.traits = replace(self.traits, layers=(target.config.layers + 1,))
        self._vocabulary, self._device = context.vocabulary_size, target.device
        self._sessions: dict[int, _Session] = {}

    def open(self, session: int, opening: Opening) -> None:
        """Starts guessing for a sequence; the first tree follows the first hidden state."""
        sampling = opening.sampling
        dice = None if sampling.greedy else Dice(sampling.seed, self._vocabulary, self._device)
        self._sessions[session] = _Session(opening, len(opening.tokens), dice)

    def commit(self, session: int, length: int, tokens: Sequence[int]) -> None:
        """Appends decided tokens."""
        if session in self._sessions:
            self._sessions[session].length = length + len(tokens)

    def see(self, session: int, start: int, states: Tensor) -> None:
        """Stores the state that decided the newest token for the next `draft`."""
        state = self._sessions.get(session)
        if state is not None and start + len(states) == state.length - 1:
            state.hidden = states[-1, 0]

    def close(self, session: int) -> None:
        """Forgets the sequence."""
        self._sessions.pop(session, None)

    @torch.inference_mode()
    def draft(self) -> list[tuple[int, DraftTree]]:
        """A tree for each sequence with a new hidden state."""
        ready = [(number, s) for number, s in self._sessions.items() if s.hidden is not None]
        if not ready:
            return []
        scores = self.heads(torch.stack([s.hidden for _, s in ready if s.hidden is not None]))
        rows = [Rows(s.opening.sampling, s.dice, range(s.length, s.length + self.heads.count)) for _, s in ready]
        ranked = rank(rows, scores.transpose(0, 1).flatten(0, 1), self._shape.children)
        trees = []
        for (number, session), guesses in zip(ready, ranked, strict=True):
            session.hidden = None
            nodes = min(self._shape.nodes, session.opening.max_nodes)
            tokens, shares = zip(*guesses, strict=True)
            trees.append((number, likeliest(session.length, tokens, shares, nodes, self.name)))
        return trees


def likeliest(
    length: int, tokens: Sequence[Sequence[int]], shares: Sequence[Sequence[float]], nodes: int, drafter: str
) -> DraftTree:
    """The ``nodes`` paths with the largest products of shares; all nodes of a depth have the same guesses.

    Args:
        length: tokens of the sequence before the tree.
        tokens: guesses of each depth, best first.
        shares: confidences of the guesses.
        nodes: most nodes.
        drafter: name of the drafter.
    """
    chosen: list[int] = []
    parents: list[int] = []
    confidences: list[float] = []
    heap = [(-shares[0][0], 0, -1, 0, 1.0)]
    while heap and len(chosen) < nodes:
        value, depth, parent, rank, parent_value = heapq.heappop(heap)
        node = len(chosen)
        chosen.append(tokens[depth][rank])
        parents.append(parent)
        confidences.append(shares[depth][rank])
        if rank + 1 < len(tokens[depth]):
            heapq.heappush(heap, (-parent_value * shares[depth][rank + 1], depth, parent, rank + 1, parent_value))
        if depth + 1 < len(tokens):
            heapq.heappush(heap, (value * shares[depth + 1][0], depth + 1, node, 0, -value))
    return DraftTree(length, chosen, parents, confidences, drafter)
