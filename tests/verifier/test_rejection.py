"""Rejection follows the target's law: exactly, over every draw of the guesses, and through the real engine; wrong
rules do not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from outrider.models.sampling import Dice, Sampling
from outrider.models.speculation import DrafterContext, DraftTree, MergedTree, Opening, Proposal, VerifiedTree
from outrider.models.speculation import proposals as proposals_module
from outrider.models.text import Tokenizer
from outrider.proposer import model_drafter as drafter_module
from outrider.proposer.model_drafter import ModelDrafter
from outrider.verifier import rejection
from outrider.verifier.rejection import Rejection, outcomes
from outrider.verifier.sequence import Request
from torch import Tensor

from tests.toy_model import save_toy
from tests.verifier.conftest import MakeEngine
from tests.verifier.drafters import EverythingDrafter
from tests.verifier.test_law import PROMPT, TEMPERATURE, VOCABULARY, Truncation, chi_square, exact_law

DRAWS, FEWER = 1_500, 1_000
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


def distributions(seed: int) -> tuple[Tensor, Tensor]:
    """A target's and a drafter's, as float32 values; some tokens have no chance under one of them."""
    random = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(6, generator=random) * 1.5).softmax(-1), (torch.randn(6, generator=random) * 1.5).softmax(-1)
    p[seed % 6], q[(seed + 2) % 6] = 0.0, 0.0
    return (p / p.sum()).double(), (q / q.sum()).float().double()


def mean_law(rule: Rule, p: Tensor, q: Tensor, guesses: int) -> Tensor:
    """What the rule says on average over every draw of ``guesses`` from q without replacement."""
    total = torch.zeros_like(p)
    for order in itertools.permutations(range(6), guesses):
        chance, left = 1.0, float(q.sum())
        for token in order:
            chance, left = chance * float(q[token]) / max(left, 1e-300), left - float(q[token])
        if chance > 0:
            total += chance * rule(p[None], q[None], torch.tensor([order]))[0]
    return total


def error(rule: Rule, guesses: int) -> float:
    """Largest difference from the target's law over some distributions."""
    pairs = [distributions(seed) for seed in range(12)]
    return max(float((mean_law(rule, p, q, guesses) - p).abs().max()) for p, q in pairs)


@pytest.mark.parametrize("guesses", [1, 2, 3])
def test_averaged_over_what_is_drawn_the_law_is_the_targets(guesses: int) -> None:
    assert error(outcomes, guesses) < 1e-7


def test_a_rounded_q_breaks_the_law() -> None:
    assert error(lambda p, q, drawn: outcomes(p, q.bfloat16().double(), drawn), 2) > 1e-4


def test_a_rest_that_is_not_normalised_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "_normalised", lambda weights, otherwise: weights)
    assert error(outcomes, 2) > 1e-2


def test_guesses_in_another_order_than_they_were_drawn_break_the_law() -> None:
    def likeliest_first(p: Tensor, q: Tensor, drawn: Tensor) -> Tensor:
        return outcomes(p, q, drawn[:, q[0, drawn[0]].argsort(descending=True)])

    assert error(likeliest_first, 2) > 1e-2


def test_fewer_guesses_because_of_what_was_drawn_break_the_law() -> None:
    def only_sure(p: Tensor, q: Tensor, drawn: Tensor) -> Tensor:
        return outcomes(p, q, torch.where(q[0, drawn] > 0.2, drawn, -1))

    assert error(only_sure, 1) > 1e-2


class Eager(ModelDrafter):
    """Drafts all there is to draft before each step."""

    def draft(self) -> list[tuple[int, DraftTree]]:
        trees: dict[int, DraftTree] = {}
        while improved := super().draft():
            trees |= dict(improved)
        return list(trees.items())


@pytest.fixture
def draft(tmp_path: Path) -> ModelDrafter:
    directory = save_toy(tmp_path / "draft", VOCABULARY, seed=9)
    options = {"children": 2, "ahead": 4, "least_value": 0.0, "rows": 512, "pages": 512, "page_size": 8}
    fingerprint = Tokenizer.load(directory).fingerprint
    return Eager(DrafterContext(fingerprint, VOCABULARY, 256, directory, dtype="float32", options=options))


def law_statistic(
    make_engine: MakeEngine, draft: ModelDrafter, truncation: Truncation, draws: int = FEWER
) -> tuple[float, float]:
    """Chi-square of what the engine says for many seeds, 64 sequences at a time, and how high chance may take it."""
    engine = make_engine(VOCABULARY, [draft], rule=Rejection({}))
    law, said = exact_law(engine, truncation), Counter[tuple[int, ...]]()
    for start in range(0, draws, 64):
        tokens: dict[str, list[int]] = {}
        for seed in range(start, min(start + 64, draws)):
            engine.submit(
                Request(f"r{seed}", "t", PROMPT, Sampling(TEMPERATURE, truncation, seed * 7919), max_tokens=3)
            )
        while engine.busy:
            for request, frame in engine.step().frames:
                tokens.setdefault(request.id, []).extend(frame.tokens)
        said.update(tuple(each) for each in tokens.values())
    assert engine.tally.accepted["model"] > draws / 2
    statistic, degrees = chi_square(law, said)
    return statistic, degrees + 5 * (2 * degrees) ** 0.5


@pytest.mark.parametrize("truncation", [Truncation(), Truncation(top_k=3, top_p=0.9)])
def test_three_tokens_have_the_targets_joint_distribution(
    make_engine: MakeEngine, draft: ModelDrafter, truncation: Truncation
) -> None:
    statistic, most = law_statistic(make_engine, draft, truncation, DRAWS)
    assert statistic < most


def test_a_drafter_that_rolls_the_targets_dice_breaks_the_law(
    make_engine: MakeEngine, draft: ModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafter_module, "own_seed", lambda seed: seed)
    statistic, most = law_statistic(make_engine, draft, Truncation())
    assert statistic > most


def test_a_drafter_that_tells_another_q_breaks_the_law(
    make_engine: MakeEngine, draft: ModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reversed_draw(logits: Tensor, rolls: Tensor, children: int) -> list[tuple[list[int], Proposal]]:
        told = proposals_module.propose(logits, rolls, children)
        drawn = proposals_module.propose(-logits, rolls, children)
        return [(tokens, q) for (tokens, _), (_, q) in zip(drawn, told, strict=True)]

    monkeypatch.setattr(drafter_module, "propose", reversed_draw)
    statistic, most = law_statistic(make_engine, draft, Truncation())
    assert statistic > most


def test_a_rest_that_is_not_normalised_breaks_the_law_in_the_engine(
    make_engine: MakeEngine, draft: ModelDrafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejection, "_normalised", lambda weights, otherwise: weights)
    statistic, most = law_statistic(make_engine, draft, Truncation())
    assert statistic > most


def test_guesses_that_were_not_drawn_are_not_used_and_counted(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], rule=Rejection({}))
    engine.submit(Request("warm", "t", PROMPT, Sampling(1.0, seed=3), max_tokens=8))
    while engine.busy:
        engine.step()
    assert engine.tally.guessed["everything"] == 0
    assert engine.tally.guesses.unusable["everything"] > 3
    engine.submit(Request("cold", "t", PROMPT, Sampling(), max_tokens=12))
    while engine.busy:
        engine.step()
    assert engine.tally.accepted["everything"] > 3


def test_confidences_say_nothing_of_what_was_drawn(draft: ModelDrafter) -> None:
    shapes = set()
    for seed in range(20):
        draft.open(seed, Opening(PROMPT, Sampling(TEMPERATURE, Truncation(top_p=0.7), seed), 31, proposes=True))
    for _, tree in draft.draft():
        shapes.add((tuple(tree.parents), tuple(tree.confidences)))
        assert tree.proposals.keys() == set(tree.parents)
    assert len(shapes) == 1


def test_values_never_rise_from_an_elder_sibling_or_a_parent() -> None:
    tree = MergedTree([1, 2, 3, 4], [-1, -1, 0, 1], [0.3, 0.5, 0.2, 0.4], [1, 1, 2, 2], [0.5] * 4, ["m"] * 4)
    tree.keep_order()
    assert tree.values == [0.3, 0.3, 0.2, 0.3]


def test_rows_without_proposals_are_left_to_the_targets_draw() -> None:
    tree = MergedTree([1, 2], [-1, 0], [0.5, 0.5], [1, 2], [0.5] * 2, ["m"] * 2)
    logits, sampling = torch.zeros(3, VOCABULARY), Sampling(1.0)
    verified = VerifiedTree(tree, logits, sampling, Dice(0, VOCABULARY), 3, [3, 0, 2])
    assert Rejection({}).decide(verified) == [3, 0, 2]
