"""Merges the trees of each sequence and chooses the guesses that a step buys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple

from outrider.models.speculation import DraftTree, MergedTree, merge
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.speculation.budget import Calibrator, buy

Calibrators = Mapping[tuple[str, bool], Calibrator]
"""Calibrators by the drafter's name and whether the sequence is greedy."""


class Prospect(NamedTuple):
    """What one decoding sequence may buy.

    Attributes:
        tokens: tokens of the sequence so far.
        trees: trees behind the sequence or behind an earlier end of it; the first tree with a guess gets the credit.
        depth: depth of the deepest guesses that may be bought.
        cap: most guesses.
        greedy: whether the sequence is decided greedily.
        tenant: tenant of the request.
        ready: a merged tree to buy from, in place of ``trees``.
    """

    tokens: list[int]
    trees: list[DraftTree]
    depth: int
    cap: int
    greedy: bool
    tenant: str = ""
    ready: MergedTree | None = None


class Terms(NamedTuple):
    """What guesses cost.

    Attributes:
        rows: rows of the step without guesses.
        limit: most guesses in the step.
        least: value below which a guess is left out.
        cost: seconds of a step by rows.
        surcharge: seconds of a step with guesses over those of a step without.
        tenant_cap: most guesses of one tenant; 0 for no cap.
    """

    rows: int
    limit: int
    least: float
    cost: CostCurve
    surcharge: float = 1.0
    tenant_cap: int = 0


class Purchased(NamedTuple):
    """What a step verifies.

    Attributes:
        trees: guesses of each sequence.
        drafted: number of guesses that could have been bought, by drafter and depth.
        dead: trees that contradict the tokens decided since, each with the index of its sequence.
    """

    trees: list[MergedTree]
    drafted: Mapping[tuple[str, int], int]
    dead: list[tuple[int, DraftTree]]


class Purchase:
    """Chooses the guesses that a step verifies; see `outrider.verifier.speculation.budget`."""

    def __init__(self, calibrators: Calibrators) -> None:
        self._calibrators = calibrators

    def __call__(self, prospects: Seq[Prospect], terms: Terms) -> Purchased:
        """Buys for all sequences that decode in the step."""
        drafted: Counter[tuple[str, int]] = Counter()
        dead: list[tuple[int, DraftTree]] = []
        candidates = []
        for owner, prospect in enumerate(prospects):
            live = dict(_live(prospect))
            dead += [(owner, tree) for place, tree in enumerate(prospect.trees) if place not in live]
            if (merged := prospect.ready) is None:
                merged = self._merge(prospect, list(live.values()), terms.least)
            drafted.update(zip(merged.drafters, merged.depths, strict=True))
            candidates.append(merged)
        caps = [prospect.cap for prospect in prospects]
        tenants = [prospect.tenant for prospect in prospects] if terms.tenant_cap else None
        bought = buy(
            candidates, caps, terms.rows, terms.limit, terms.cost, terms.surcharge, tenants, terms.tenant_cap
        )  # fmt: skip
        return Purchased(bought, drafted, dead)

    def _merge(self, prospect: Prospect, trees: list[DraftTree], least: float) -> MergedTree:
        return merge(trees, prospect.depth, lambda drafter: self._calibrators[drafter, prospect.greedy], least)


def _live(prospect: Prospect) -> Iterator[tuple[int, DraftTree]]:
    """The part of each tree that agrees with the tokens so far, with the index of the tree."""
    for place, tree in enumerate(prospect.trees):
        if (left := tree.after(prospect.tokens[tree.length :])) is not None:
            yield place, left
