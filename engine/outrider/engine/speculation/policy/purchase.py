"""Merges the trees of each sequence and chooses the guesses that a step buys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple

from outrider.engine.scheduling.cost_curve import CostCurve
from outrider.engine.speculation import DraftTree, MergedTree, merge
from outrider.engine.speculation.policy.budget import Calibrator, buy

Calibrators = Mapping[tuple[str, bool], Calibrator]
"""Calibrators by the drafter's name and whether the sequence is greedy."""


class BuyingSequence(NamedTuple):
    """A sequence that decodes, and the guesses that it may buy.

    Attributes:
        tokens: tokens of the sequence so far.
        trees: trees behind the sequence or behind an earlier end of it; the first tree with a guess gets the credit.
        depth: depth of the deepest guesses that may be bought.
        cap: most guesses.
        greedy: whether the sequence is decided greedily.
        tenant: tenant of the request.
        merged: a merged tree to buy from, in place of ``trees``.
    """

    tokens: list[int]
    trees: list[DraftTree]
    depth: int
    cap: int
    greedy: bool
    tenant: str = ""
    merged: MergedTree | None = None


class BuyTerms(NamedTuple):
    """What guesses cost in a step, and how many it may buy.

    Attributes:
        rows: rows of the step without guesses.
        limit: most guesses in the step.
        least: value below which a guess is left out.
        cost: seconds of a step by rows.
        tenant_cap: most guesses of one tenant; 0 for no cap.
    """

    rows: int
    limit: int
    least: float
    cost: CostCurve
    tenant_cap: int = 0


class BoughtGuesses(NamedTuple):
    """The guesses that a step verifies.

    Attributes:
        trees: guesses of each sequence.
        drafted: number of guesses that could have been bought, by drafter and depth.
        outdated: trees that contradict the tokens decided since, each with the index of its sequence.
    """

    trees: list[MergedTree]
    drafted: Mapping[tuple[str, int], int]
    outdated: list[tuple[int, DraftTree]]


class Purchase:
    """Chooses the guesses that a step verifies; see `outrider.engine.speculation.policy.budget`."""

    def __init__(self, calibrators: Calibrators) -> None:
        self._calibrators = calibrators

    def __call__(self, sequences: Seq[BuyingSequence], terms: BuyTerms) -> BoughtGuesses:
        """Buys for all sequences that decode in the step."""
        drafted: Counter[tuple[str, int]] = Counter()
        outdated: list[tuple[int, DraftTree]] = []
        candidates = []
        for owner, sequence in enumerate(sequences):
            live = dict(_live(sequence))
            outdated += [(owner, tree) for place, tree in enumerate(sequence.trees) if place not in live]
            if (merged := sequence.merged) is None:
                merged = self._merge(sequence, list(live.values()), terms.least)
            drafted.update(zip(merged.drafters, merged.depths, strict=True))
            candidates.append(merged)
        caps = [sequence.cap for sequence in sequences]
        tenants = [sequence.tenant for sequence in sequences] if terms.tenant_cap else None
        bought = buy(candidates, caps, terms.rows, terms.limit, terms.cost, tenants, terms.tenant_cap)
        return BoughtGuesses(bought, drafted, outdated)

    def _merge(self, sequence: BuyingSequence, trees: list[DraftTree], least: float) -> MergedTree:
        return merge(trees, sequence.depth, lambda drafter: self._calibrators[drafter, sequence.greedy], least)


def _live(sequence: BuyingSequence) -> Iterator[tuple[int, DraftTree]]:
    """The part of each tree that agrees with the tokens so far, with the index of the tree."""
    for place, tree in enumerate(sequence.trees):
        if (left := tree.after(sequence.tokens[tree.length :])) is not None:
            yield place, left
