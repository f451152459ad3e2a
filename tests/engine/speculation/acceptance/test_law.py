"""Answers have the target's distribution, found by enumeration; with wrong rules they do not."""

from __future__ import annotations

from collections import Counter

import pytest
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import VerifiedTree
from outrider.engine.speculation.acceptance.accept import walk
from outrider.kernels.race_sample import Truncation, race

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import CheckedEngine, MakeEngine
from tests.engine.laws import DRAWS, PROMPT, TEMPERATURE, VOCABULARY, answers, chi_square, exact_law


def drawn(engine: CheckedEngine, truncation: Truncation) -> Counter[tuple[int, ...]]:
    """The verifier's answers for many seeds."""
    dice = [Sampling(TEMPERATURE, truncation, seed * 7919) for seed in range(DRAWS)]
    return answers(engine, [Request(f"r{seed}", "t", PROMPT, each, max_tokens=3) for seed, each in enumerate(dice)])


def follows_the_law(engine: CheckedEngine, truncation: Truncation = Truncation()) -> bool:  # noqa: B008 - it is immutable
    statistic, degrees = chi_square(exact_law(engine, truncation), drawn(engine, truncation))
    return statistic < degrees + 5 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_three_tokens_have_the_targets_joint_distribution(make_engine: MakeEngine, depth: int) -> None:
    drafters = [EverythingDrafter(VOCABULARY, depth)] if depth else []
    assert follows_the_law(make_engine(VOCABULARY, drafters))


def test_truncated_distributions_are_followed_too(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)])
    assert follows_the_law(engine, Truncation(top_k=3, top_p=0.9, min_p=0.02))


class Judge:
    """A rule that decides by the target's draws, which a test may change."""

    name = "judge"
    lossy = needs_proposals = replacement = False

    def decide(self, verified: VerifiedTree) -> list[int]:
        return self.change(verified)

    def change(self, verified: VerifiedTree) -> list[int]:
        return verified.drawn


def again(verified: VerifiedTree, positions: list[int], temperatures: list[float]) -> list[int]:
    """The draws of a tree's rows at other positions, or at other temperatures."""
    drawn = race(verified.logits, [verified.sampling.seed] * len(positions), positions, temperatures)
    assert drawn is not None
    return drawn


class SameDice(Judge):
    def change(self, verified: VerifiedTree) -> list[int]:
        rows = len(verified.logits)
        return again(verified, [len(PROMPT)] * rows, [TEMPERATURE] * rows)


class HalfWarm(Judge):
    """Forgets the temperature at guesses."""

    def change(self, verified: VerifiedTree) -> list[int]:
        positions = [verified.position, *(verified.position + depth for depth in verified.tree.depths)]
        return again(verified, positions, [TEMPERATURE] + [1.0] * len(verified.tree))


class Credulous(Judge):
    """Accepts the drafter's first token without a check."""

    def change(self, verified: VerifiedTree) -> list[int]:
        return [verified.tree.tokens[0], *verified.drawn[1:]]


class Shifted(Judge):
    """Takes the last token from the row before."""

    def change(self, verified: VerifiedTree) -> list[int]:
        drawn = verified.drawn
        last = walk(verified.tree.tokens, verified.tree.parents, drawn).rows[-1]
        return [*drawn[:last], drawn[max(last - 1, 0)], *drawn[last + 1 :]]


@pytest.mark.parametrize(
    ("rule", "follows"), [(Judge, True), (SameDice, False), (HalfWarm, False), (Credulous, False), (Shifted, False)]
)
def test_a_wrong_rule_breaks_the_law(make_engine: MakeEngine, rule: type[Judge], follows: bool) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 2)], rule=rule())
    assert follows_the_law(engine) is follows
