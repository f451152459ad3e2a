"""Typical acceptance: accepts a guess that the target finds likely enough. Answers lose the target's distribution.

Cai et al. 2024, "Medusa" (arXiv 2401.10774), section 2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from outrider.engine.speculation.acceptance.rule import AcceptanceError, VerifiedTree


class Typical:
    """Accepts guesses whose probability under the target is at least min(epsilon, delta * exp(-entropy)).

    Of several such siblings it accepts the one with the longest accepted run behind it; among equals, the likeliest.
    Options: ``epsilon`` (0.09) and ``delta`` (0.3), both above 0 and at most 1.
    """

    name = "typical"
    lossy = True
    needs_proposals = False
    replacement = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(options.keys() - {"epsilon", "delta"})
        if unknown:
            raise AcceptanceError(f"the typical rule's options are epsilon and delta, not {', '.join(unknown)}")
        self._epsilon, self._delta = (_share(options, *pair) for pair in (("epsilon", 0.09), ("delta", 0.3)))

    def decide(self, verified: VerifiedTree) -> list[int]:
        """At each row: the best guess that is likely enough, else the target's own draw."""
        tree, tokens = verified.tree, list(verified.drawn)
        p = verified.sampling.shape(verified.logits).softmax(-1)
        floors = (torch.special.entr(p).sum(-1).neg().exp() * self._delta).clamp(max=self._epsilon)
        rows = torch.tensor(tree.parents, device=p.device) + 1
        chances = p[rows, torch.tensor(tree.tokens, device=p.device)]
        able, chance = (chances >= floors[rows]).tolist(), chances.tolist()
        best: list[tuple[int, float]] = [(0, 0.0)] * len(tokens)
        for node in reversed(range(len(tree))):
            parent, rank = tree.parents[node] + 1, (best[node + 1][0] + 1, chance[node])
            if able[node] and rank > best[parent]:
                best[parent], tokens[parent] = rank, tree.tokens[node]
        return tokens


def _share(options: Mapping[str, Any], name: str, default: float) -> float:
    value = options.get(name, default)
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise AcceptanceError(f"the typical rule's {name} must be above 0 and at most 1, not {value!r}")
    return float(value)
