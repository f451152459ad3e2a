"""What a step buys of the trees of its sequences: in compiled code, and in Python where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

from outrider.kernels.native.merging import BoughtTree, Merging, native_merging
from outrider.models.speculation import NO_GUESSES, DraftTree, MergedTree, merge
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.speculation.budget import EDGES, Calibrator, buy

Calibrators = Mapping[tuple[str, bool], Calibrator]
"""By the drafter's name and whether the sequence is greedy; there is one for every drafter."""


class Prospect(NamedTuple):
    """What one decoding sequence may buy.

    Attributes:
        tokens: of the sequence so far.
        trees: that hang from it, or from where it was before; of guesses that several have, the first one's counts.
        depth: deeper guesses are left out.
        cap: most guesses.
        greedy: whether it is decided greedily.
        tenant: whose it is.
        ready: what it may buy instead of the trees, as it stands.
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
        rows: rows the step has without guesses.
        limit: most guesses in the step.
        least: value below which a guess is not looked at.
        cost: seconds of a step by rows.
        surcharge: factor on the seconds of a step with guesses, beside one without.
        tenant_cap: most guesses of one tenant, 0 for any number.
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
        trees: each sequence's guesses.
        drafted: how many could have been bought, by drafter and depth.
        dead: trees that do not agree with what was decided since, with the index of their sequence.
    """

    trees: list[MergedTree]
    drafted: Mapping[tuple[str, int], int]
    dead: list[tuple[int, DraftTree]]


class Purchase(Protocol):
    """Chooses what a step verifies; see `outrider.verifier.speculation.budget`."""

    def __call__(self, prospects: Seq[Prospect], terms: Terms) -> Purchased:
        """For all sequences that decode in the step."""
        ...


class PlainPurchase:
    """As `CompiledPurchase`, which has to say the same."""

    def __init__(self, calibrators: Calibrators) -> None:
        self._calibrators = calibrators

    def __call__(self, prospects: Seq[Prospect], terms: Terms) -> Purchased:
        """As `Purchase`."""
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
    """By their places, what is left of trees since they were made."""
    for place, tree in enumerate(prospect.trees):
        if (left := tree.after(prospect.tokens[tree.length :])) is not None:
            yield place, left


class CompiledPurchase:
    """All of it in one call of the library."""

    def __init__(self, calibrators: Calibrators, merging: Merging) -> None:
        self._calibrators, self._merging = calibrators, merging
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __call__(self, prospects: Seq[Prospect], terms: Terms) -> Purchased:
        """As `Purchase`."""
        tenants: dict[str, int] = {}
        for prospect in prospects:
            self._give(prospect, tenants.setdefault(prospect.tenant, len(tenants)))
        rows, limit, least, cost, surcharge, tenant_cap = terms
        seconds = cost.table(rows, max(limit, 0))
        bought = self._merging.buy(seconds, least, surcharge, limit, len(tenants), tenant_cap)
        names = self._names
        drafted = Counter({(names[drafter], depth): number for drafter, depth, number in bought.cells})
        for prospect in prospects:
            if prospect.ready is not None:
                drafted.update(zip(prospect.ready.drafters, prospect.ready.depths, strict=True))
        trees = list(map(self._tree, prospects, bought.trees))
        return Purchased(trees, drafted, _named(prospects, bought.dead) if bought.dead else [])

    def _give(self, prospect: Prospect, tenant: int) -> None:
        """Hands over what a sequence may buy."""
        merging = self._merging
        tokens, trees, depth, cap, greedy, _, ready = prospect
        if ready is not None:
            merging.ready(ready.parents, ready.values, cap, tenant)
            return
        merging.sequence(len(trees), depth, cap, tenant, greedy)
        for tree in trees:
            number = self._numbers.get(tree.drafter)
            if number is None:
                number = self._number(tree.drafter)
            merging.tree(number, tree.tokens, tree.parents, tree.confidences, tokens[tree.length :])

    def _number(self, drafter: str) -> int:
        plain, greedy = (self._calibrators[drafter, greedy].address for greedy in (False, True))
        number = self._numbers[drafter] = self._merging.drafter(plain, greedy)
        self._names.append(drafter)
        return number

    def _tree(self, prospect: Prospect, bought: BoughtTree | None) -> MergedTree:
        if bought is None:
            return NO_GUESSES
        tokens, parents, depths, drafters, firsts, nodes, values, confidences = bought
        if prospect.ready is not None:
            return prospect.ready.take(nodes)
        name = self._names.__getitem__
        by, first = list(map(name, drafters)), list(map(name, firsts))
        return MergedTree(tokens, parents, values, depths, confidences, by, {}, first)


def _named(prospects: Seq[Prospect], places: Seq[int]) -> list[tuple[int, DraftTree]]:
    """Of the trees that were given, one sequence's after the other's, those at ``places``, each with its sequence."""
    given = [(owner, tree) for owner, each in enumerate(prospects) if each.ready is None for tree in each.trees]
    return [given[place] for place in places]


def best_purchase(calibrators: Calibrators) -> Purchase:
    """The compiled one where it can be had."""
    merging = native_merging(EDGES)
    return PlainPurchase(calibrators) if merging is None else CompiledPurchase(calibrators, merging)
