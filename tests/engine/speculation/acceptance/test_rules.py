"""Properties of every rule of acceptance, and typical acceptance."""

from __future__ import annotations

import random

import pytest
import torch
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation import Acceptance, AcceptanceError, MergedTree, VerifiedTree
from outrider.engine.speculation.acceptance.typical import Typical
from outrider.engine.speculation.trees.proposals import own_seed, propose
from outrider.mesh import plugins

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import MakeEngine, requests, run, tokens

VOCABULARY, BANNED = 12, 5


def rule(name: str, **options: object) -> Acceptance:
    made: Acceptance = plugins.load("outrider.acceptance", name)(options)
    return made


def verified(seed: int) -> VerifiedTree:
    """A random tree of drawn guesses on random logits that allow every token but one."""
    dice, random_logits = random.Random(seed), torch.Generator().manual_seed(seed)
    tree, open_nodes = MergedTree(), [-1]
    while len(tree) < 12:
        parent = open_nodes.pop(0)
        logits = torch.randn(1, VOCABULARY, generator=random_logits)
        depth = tree.depths[parent] + 1 if parent >= 0 else 1
        [(drawn, proposal)] = propose(logits, Dice(own_seed(seed), VOCABULARY).at(9 + depth)[None], 3)
        tree.proposals[parent] = proposal
        for token in drawn[: dice.randint(1, 3)]:
            open_nodes.append(len(tree))
            tree.append(token, parent, 0.5, depth, 0.5, "m")
    logits = torch.randn(len(tree) + 1, VOCABULARY, generator=random_logits)
    logits[:, BANNED] = float("-inf")
    drawn = [dice.choice([t for t in range(VOCABULARY) if t != BANNED]) for _ in range(len(tree) + 1)]
    return VerifiedTree(tree, logits, Sampling(1.0, seed=seed), Dice(seed, VOCABULARY), 9, drawn)


@pytest.mark.parametrize("name", ["race", "rejection", "typical"])
def test_a_rule_decides_an_allowed_token_at_every_row_and_leaves_its_tree_alone(name: str) -> None:
    made = rule(name)
    assert made.name == name
    for seed in range(30):
        tree = verified(seed)
        before = (list(tree.drawn), list(tree.tree.tokens), tree.logits.clone())
        decided = made.decide(tree)
        assert len(decided) == len(tree.tree) + 1
        assert all(0 <= token < VOCABULARY and token != BANNED for token in decided)
        assert made.decide(tree) == decided
        assert (tree.drawn, tree.tree.tokens) == before[:2]
        assert torch.equal(tree.logits, before[2])


@pytest.mark.parametrize("name", ["race", "rejection", "typical"])
def test_an_option_that_a_rule_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(AcceptanceError, match="colour"):
        rule(name, colour=1)


def test_rejection_takes_no_other_answer_than_yes_or_no_on_replacement() -> None:
    assert [rule("rejection", **options).replacement for options in ({}, {"replacement": True})] == [False, True]
    with pytest.raises(AcceptanceError, match="replacement"):
        rule("rejection", replacement="no")


def test_only_typical_acceptance_says_that_it_changes_answers() -> None:
    assert [name for name in ("race", "rejection", "typical") if rule(name).lossy] == ["typical"]


@pytest.mark.parametrize("name", ["rejection", "typical"])
def test_greedy_answers_are_the_same_under_every_rule(make_engine: MakeEngine, name: str) -> None:
    wanted = [r for r in requests(24) if r.sampling.greedy]
    assert len(wanted) > 3
    plain = run(make_engine(50), wanted)
    ruled = run(make_engine(50, [EverythingDrafter(50, 1)], rule=rule(name)), wanted)
    assert {k: tokens(v) for k, v in ruled.items()} == {k: tokens(v) for k, v in plain.items()}


def tree_of(probabilities: list[list[float]], guesses: list[int], parents: list[int]) -> VerifiedTree:
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
    size = len(guesses)
    tree = MergedTree(guesses, parents, [0.5] * size, depths, [0.5] * size, ["m"] * size)
    logits = torch.tensor(probabilities).log()
    return VerifiedTree(tree, logits, Sampling(1.0), Dice(0, len(probabilities[0])), 3, [9] * (size + 1))


EVEN, SURE = [0.25] * 4, [0.97, 0.01, 0.01, 0.01]


def test_typical_takes_a_guess_that_is_likely_enough_for_how_sure_the_target_is() -> None:
    assert Typical({}).decide(tree_of([EVEN, EVEN], [2], [-1])) == [2, 9]
    assert Typical({}).decide(tree_of([SURE, EVEN], [2], [-1])) == [9, 9]
    assert Typical({"epsilon": 0.005}).decide(tree_of([SURE, EVEN], [2], [-1])) == [2, 9]


def test_typical_follows_the_longest_run_and_then_the_likeliest_guess() -> None:
    row = [0.4, 0.3, 0.2, 0.1]
    assert Typical({}).decide(tree_of([row] * 3, [0, 1], [-1, -1]))[0] == 0
    assert Typical({}).decide(tree_of([row] * 4, [0, 1, 2], [-1, -1, 1])) == [1, 9, 2, 9]


@pytest.mark.parametrize("value", [0, 1.5, "high"])
def test_typical_refuses_a_share_that_is_none(value: object) -> None:
    with pytest.raises(AcceptanceError, match="epsilon"):
        Typical({"epsilon": value})


@pytest.mark.parametrize(
    ("name", "temperature", "lossy"), [("race", 1.0, False), ("typical", 1.0, True), ("typical", 0.0, False)]
)
def test_an_answer_whose_law_may_be_another_says_so(
    make_engine: MakeEngine, name: str, temperature: float, lossy: bool
) -> None:
    engine = make_engine(50, [EverythingDrafter(50, 1)], rule=rule(name))
    usage = run(engine, [Request("r", "t", [1, 2], Sampling(temperature, seed=4), 6)])["r"][-1].usage
    assert usage is not None
    assert usage.lossy is lossy
    quiet = Request("q", "t", [1, 2], Sampling(temperature, seed=4), 6, speculation=Speculation(off=True))
    usage = run(engine, [quiet])["q"][-1].usage
    assert usage is not None
    assert usage.lossy is False
