"""The guesses that a step buys from the trees of its sequences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.engine.speculation import DraftTree, MergedTree, merge
from outrider.engine.speculation.policy.budget import EDGES, Calibrator, CostCurve
from outrider.engine.speculation.policy.purchase import BuyingSequence, BuyTerms, Purchase

TOKENS = st.integers(0, 2)
CONFIDENCES = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0, EDGES[0], EDGES[9]])
CURVES = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda more: CostCurve(range(1, 4 * len(more) + 2, 4), list(accumulate(more, initial=9)))
)


@st.composite
def trees(draw: st.DrawFn, length: int) -> DraftTree:
    size = draw(st.integers(0, 9))
    tokens = draw(st.lists(TOKENS, min_size=size, max_size=size))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    confidences = draw(st.lists(CONFIDENCES, min_size=size, max_size=size))
    return DraftTree(draw(st.integers(0, length)), tokens, parents, confidences, draw(st.sampled_from("abc")))


@st.composite
def sequences(draw: st.DrawFn) -> BuyingSequence:
    tokens = draw(st.lists(TOKENS, min_size=1, max_size=3))
    given = draw(st.lists(trees(len(tokens)), max_size=3))
    merged = None
    if draw(st.integers(0, 3)) == 0:
        given, merged = [], merge([draw(trees(0))], 9, lambda _: Calibrator())
    depth, cap = draw(st.integers(0, 6)), draw(st.integers(0, 9))
    return BuyingSequence(tokens, given, depth, cap, draw(st.booleans()), draw(st.sampled_from(["", "red"])), merged)


LEAST = st.sampled_from([0.0, Calibrator()(0.0), Calibrator()(0.5)]) | st.floats(0, 0.3)
TERMS = st.builds(BuyTerms, st.integers(1, 9), st.integers(-1, 20), LEAST, CURVES, st.integers(0, 6))


@settings(max_examples=100, deadline=None)
@given(st.lists(sequences(), min_size=1, max_size=4), TERMS)
def test_what_is_bought_keeps_within_every_cap(buyers: list[BuyingSequence], terms: BuyTerms) -> None:
    bought = Purchase(defaultdict(Calibrator))(buyers, terms).trees
    assert sum(map(len, bought)) <= max(terms.limit, 0)
    spent: Counter[str] = Counter()
    for buyer, tree in zip(buyers, bought, strict=True):
        assert len(tree) <= buyer.cap
        spent[buyer.tenant] += len(tree)
    assert not terms.tenant_cap or max(spent.values()) <= terms.tenant_cap


@settings(max_examples=100, deadline=None)
@given(st.lists(sequences(), min_size=1, max_size=4), TERMS)
def test_what_is_bought_goes_on_from_what_was_decided(buyers: list[BuyingSequence], terms: BuyTerms) -> None:
    bought = Purchase(defaultdict(Calibrator))(buyers, terms)
    for owner, (buyer, tree) in enumerate(zip(buyers, bought.trees, strict=True)):
        if buyer.merged is not None:
            assert _paths(tree.tokens, tree.parents) <= _paths(buyer.merged.tokens, buyer.merged.parents)
            continue
        offered_paths = {path for each in buyer.trees for path in _paths(each.tokens, each.parents, each.length)}
        for path in _paths(tree.tokens, tree.parents, len(buyer.tokens)):
            assert any((start, (*buyer.tokens[start:], *path[1])) in offered_paths for start in range(path[0] + 1))
        assert all(depth <= buyer.depth for depth in tree.depths)
        assert all(value >= terms.least for value in tree.values)
        assert all(any(each is outdated for each in buyer.trees) for at, outdated in bought.outdated if at == owner)


def _paths(tokens: Sequence[int], parents: Sequence[int], length: int = 0) -> set[tuple[int, tuple[int, ...]]]:
    """The tokens from a tree's root to each node, with the length of the sequence before the tree."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return {(length, path) for path in paths}


def test_a_tree_that_hangs_from_an_earlier_end_counts_as_far_as_it_agrees() -> None:
    calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
    agrees = DraftTree(2, [7, 8, 9, 5], [-1, 0, 1, -1], [0.99] * 4, "a")
    differs = DraftTree(2, [6, 5], [-1, 0], [0.99] * 2, "b")
    terms = BuyTerms(1, 8, 0.0, CostCurve([1, 9], [1.0, 1.1]))
    purchase = Purchase(calibrators)
    bought, drafted, outdated = purchase([BuyingSequence([1, 2, 7], [agrees, differs], 5, 8, True)], terms)
    assert [(tree.tokens, tree.parents, tree.depths, tree.drafters) for tree in bought] == [
        ([8, 9], [-1, 0], [1, 2], ["a", "a"])
    ]
    assert dict(drafted) == {("a", 1): 1, ("a", 2): 1}
    assert outdated == [(0, differs)]


def test_what_is_ready_is_bought_as_it_stands() -> None:
    calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
    merged = MergedTree([4, 4, 6], [-1, -1, 1], [0.9, 0.9, 0.8], [1, 1, 2], [0.9, 0.9, 0.9], ["r"] * 3)
    terms = BuyTerms(1, 8, 0.0, CostCurve([1, 9], [1.0, 1.1]))
    purchase = Purchase(calibrators)
    drafted = {("r", 1): 2, ("r", 2): 1}
    assert purchase([BuyingSequence([1], [], 5, 8, False, merged=merged)], terms) == ([merged], drafted, [])
