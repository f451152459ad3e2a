"""What the compiled library buys for a step against what is bought in Python."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.native import library
from outrider.kernels.native.merging import Merging
from outrider.models.speculation import DraftTree, MergedTree, merge
from outrider.verifier.scheduling.cost_curve import CostCurve
from outrider.verifier.speculation.budget import EDGES, Calibrator
from outrider.verifier.speculation.purchase import CompiledPurchase, PlainPurchase, Prospect, Purchased, Terms

Outcome = tuple[str, bool, float, bool]
TOKENS = st.integers(0, 2)
CONFIDENCES = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0, EDGES[0], EDGES[9], float("nan")])
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
def prospects(draw: st.DrawFn) -> Prospect:
    tokens = draw(st.lists(TOKENS, min_size=1, max_size=3))
    given = draw(st.lists(trees(len(tokens)), max_size=3))
    ready = None
    if draw(st.integers(0, 3)) == 0:
        given, ready = [], merge([draw(trees(0))], 9, lambda _: Calibrator())
    depth, cap = draw(st.integers(0, 6)), draw(st.integers(0, 9))
    return Prospect(tokens, given, depth, cap, draw(st.booleans()), draw(st.sampled_from(["", "red"])), ready)


LEAST = st.sampled_from([0.0, Calibrator()(0.0), Calibrator()(0.5)]) | st.floats(0, 0.3)
TERMS = st.builds(Terms, st.integers(1, 9), st.integers(-1, 20), LEAST, CURVES, st.floats(0.5, 1.5), st.integers(0, 6))
OUTCOMES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 1), st.booleans()), max_size=30)
STEPS = st.tuples(st.lists(prospects(), min_size=1, max_size=4), TERMS, OUTCOMES)


@settings(max_examples=80, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3))
def test_the_compiled_purchase_is_the_plain_one(steps: list[tuple[list[Prospect], Terms, list[Outcome]]]) -> None:
    calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
    plain, compiled = PlainPurchase(calibrators), CompiledPurchase(calibrators, Merging(EDGES, library()))
    for given_prospects, terms, outcomes in steps:
        assert _shown(compiled(given_prospects, terms)) == _shown(plain(given_prospects, terms))
        for drafter, greedy, confidence, right in outcomes:
            calibrators[drafter, greedy].learn(confidence, right)


def _shown(purchased: Purchased) -> tuple[list[str], dict[tuple[str, int], int], list[tuple[int, int]]]:
    """Not a number is told as such, and trees as themselves."""
    found, drafted, dead = purchased
    return list(map(repr, found)), dict(drafted), [(owner, id(tree)) for owner, tree in dead]


def test_a_tree_that_hangs_from_an_earlier_end_counts_as_far_as_it_agrees() -> None:
    calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
    agrees = DraftTree(2, [7, 8, 9, 5], [-1, 0, 1, -1], [0.99] * 4, "a")
    differs = DraftTree(2, [6, 5], [-1, 0], [0.99] * 2, "b")
    terms = Terms(1, 8, 0.0, CostCurve([1, 9], [1.0, 1.1]))
    for purchase in (PlainPurchase(calibrators), CompiledPurchase(calibrators, Merging(EDGES, library()))):
        bought, drafted, dead = purchase([Prospect([1, 2, 7], [agrees, differs], 5, 8, True)], terms)
        assert [(tree.tokens, tree.parents, tree.depths, tree.drafters) for tree in bought] == [
            ([8, 9], [-1, 0], [1, 2], ["a", "a"])
        ]
        assert dict(drafted) == {("a", 1): 1, ("a", 2): 1}
        assert dead == [(0, differs)]


def test_what_is_ready_is_bought_as_it_stands() -> None:
    calibrators: dict[tuple[str, bool], Calibrator] = defaultdict(Calibrator)
    ready = MergedTree([4, 4, 6], [-1, -1, 1], [0.9, 0.9, 0.8], [1, 1, 2], [0.9, 0.9, 0.9], ["r"] * 3)
    terms = Terms(1, 8, 0.0, CostCurve([1, 9], [1.0, 1.1]))
    for purchase in (PlainPurchase(calibrators), CompiledPurchase(calibrators, Merging(EDGES, library()))):
        drafted = {("r", 1): 2, ("r", 2): 1}
        assert purchase([Prospect([1], [], 5, 8, False, ready=ready)], terms) == ([ready], drafted, [])
