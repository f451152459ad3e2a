"""Rejection keeps the target's distribution, by enumeration and in a real engine; wrong rules do not."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Dice, Sampling
from outrider.engine.speculation import DrafterContext, DraftTree, MergedTree, Opening, Proposal, VerifiedTree
from outrider.engine.speculation.acceptance.rejection import Rejection, outcomes
from outrider.engine.speculation.drafters.model_drafter import ModelDrafter
from outrider.engine.speculation.trees import proposals as proposals_module
from outrider.engine.speculation.trees.proposals import own_seed
from outrider.engine.text import Tokenizer
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample import Truncation
from torch import Tensor

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import MakeEngine, accepted_guesses, bought_guesses
from tests.engine.laws import PROMPT, TEMPERATURE, VOCABULARY, answers, chi_square, exact_law
from tests.toy_model import save_toy

Rule = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
Proposals = list[tuple[list[int], Proposal]]

either_way = pytest.mark.parametrize("replacement", [False, True])


def distributions(seed: int) -> tuple[Tensor, Tensor]:
    """Distributions of a target and of a drafter, float32; some tokens have probability 0 under one of them."""
    random = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(6, generator=random) * 1.5).softmax(-1), (torch.randn(6, generator=random) * 1.5).softmax(-1)
    p[seed % 6], q[(seed + 2) % 6] = 0.0, 0.0
    return (p / p.sum()).double(), (q / q.sum()).float().double()


def orders(q: Tensor, guesses: int, replacement: bool) -> tuple[Tensor, Tensor]:
    """Every draw of ``guesses`` from q, int64 [n, guesses], and its chance, float64 [n]."""
    every = torch.tensor([*itertools.product(range(6), repeat=guesses)])
    drawn = q[every]
    before = 0 if replacement else drawn.cumsum(1) - drawn
    chances = (drawn / (q.sum() - before).clamp(min=1e-300)).prod(1)
    again = torch.tensor([len(set(order)) < guesses for order in every.tolist()])
    return every, chances if replacement else chances.masked_fill(again, 0.0)


def mean_law(rule: Rule, p: Tensor, q: Tensor, guesses: int, replacement: bool) -> Tensor:
    """The rule's mean distribution over every draw of ``guesses`` from q."""
    every, chances = orders(q, guesses, replacement)
    there = chances > 0
    count = int(there.sum())
    said = rule(p.expand(count, -1), q.expand(count, -1), every[there], replacement)
    return (chances[there, None] * said).sum(0)


def error(rule: Rule, guesses: int, replacement: bool) -> float:
    """Largest difference from the target's law over some distributions."""
    pairs = [distributions(seed) for seed in range(12)]
    return max(float((mean_law(rule, p, q, guesses, replacement) - p).abs().max()) for p, q in pairs)


@either_way
@pytest.mark.parametrize("guesses", [1, 2, 3, 4])
def test_averaged_over_what_is_drawn_the_law_is_the_targets(guesses: int, replacement: bool) -> None:
    assert error(outcomes, guesses, replacement) < 2e-7


@either_way
def test_a_rounded_q_breaks_the_law(replacement: bool) -> None:
    def rounded(p: Tensor, q: Tensor, drawn: Tensor, replacement: bool) -> Tensor:
        return outcomes(p, q.bfloat16().double(), drawn, replacement)

    assert error(rounded, 2, replacement) > 1e-4


@either_way
def test_guesses_in_another_order_than_they_were_drawn_break_the_law(replacement: bool) -> None:
    def likeliest_first(p: Tensor, q: Tensor, drawn: Tensor, replacement: bool) -> Tensor:
        order = q.gather(1, drawn).argsort(1, descending=True)
        return outcomes(p, q, drawn.gather(1, order), replacement)

    assert error(likeliest_first, 2, replacement) > 1e-2


@either_way
def test_fewer_guesses_because_of_what_was_drawn_break_the_law(replacement: bool) -> None:
    def only_sure(p: Tensor, q: Tensor, drawn: Tensor, replacement: bool) -> Tensor:
        return outcomes(p, q, torch.where(q.gather(1, drawn) > 0.2, drawn, -1), replacement)

    assert error(only_sure, 1, replacement) > 1e-2


def test_guesses_without_replacement_that_are_taken_for_some_with_it_break_the_law() -> None:
    assert error(lambda p, q, drawn, _: outcomes(p, q, drawn, replacement=True), 2, replacement=False) > 1e-2


@either_way
@pytest.mark.parametrize("same_dice", [False, True])
def test_the_decision_needs_other_dice_than_the_guesses(same_dice: bool, replacement: bool) -> None:
    draws, logits = 4_000, torch.tensor([[1.0, 0.3, 0.0, -1.0], [0.0, 0.8, -0.5, 0.7]]).repeat_interleave(4_000, 1)
    target, draft = (row.view(4, draws).mT for row in logits)
    rolls = log_exponentials(5, torch.arange(draws), 4)
    others = rolls if same_dice else log_exponentials(own_seed(5), torch.arange(draws), 4)
    proposed = proposals_module.propose(draft, others, 2, replacement)
    q = proposals_module.dense([proposal for _, proposal in proposed], 4, draft)
    p = target.double().softmax(-1)
    law = outcomes(p, q, torch.tensor([tokens for tokens, _ in proposed]), replacement)
    counts = torch.bincount((law.log() - rolls).argmax(-1), minlength=4)
    chi = float(((counts - p[0] * draws) ** 2 / (p[0] * draws)).sum())
    assert (chi > 40) if same_dice else (chi < 16)  # 3 degrees of freedom: 16 is 1 in 1,000


def test_a_token_that_is_drawn_again_is_a_guess_again() -> None:
    logits, rolls = torch.tensor([[2.0, 0.0, -1.0]]).repeat(400, 1), Dice(3, 3)
    noise = torch.stack([rolls.at(position) for position in range(400)])
    proposed = proposals_module.propose(logits, noise, 2, replacement=True)
    pairs = Counter(tuple(tokens) for tokens, _ in proposed)
    q = torch.tensor(proposed[0][1].probabilities).tolist()
    assert all(proposal.replacement and proposal.tokens == [0, 1, 2] for _, proposal in proposed)
    expected = {(a, b): 400 * q[a] * q[b] for a in range(3) for b in range(3)}
    assert sum((pairs[pair] - mean) ** 2 / mean for pair, mean in expected.items()) < 26  # 1 in 1,000


class Eager(ModelDrafter):
    """Drafts everything before each step, and changes its trees with ``change``."""

    change: Callable[[Proposals], Proposals] | None = None

    def draft(self) -> list[tuple[int, DraftTree]]:
        trees: dict[int, DraftTree] = {}
        while improved := super().draft():
            trees |= dict(improved)
        return [(number, changed(tree, self.change) if self.change else tree) for number, tree in trees.items()]


def changed(tree: DraftTree, change: Callable[[Proposals], Proposals]) -> DraftTree:
    """The tree after ``change`` of each node's children and of the distribution that they were drawn from."""
    children: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(tree.parents):
        children[parent].append(node)
    changed_tokens, parents, sure, proposals = list[int](), list[int](), list[float](), dict[int, Proposal]()
    waiting = [(-1, -1)]
    for old, new in waiting:
        if old not in tree.proposals:
            continue
        nodes = children[old]
        [(tokens, proposals[new])] = change([([tree.tokens[node] for node in nodes], tree.proposals[old])])
        for token, place in zip(tokens, children[old], strict=False):
            node = next(node for node in nodes if tree.tokens[node] == token)
            nodes = [other for other in nodes if other != node]
            waiting.append((node, len(changed_tokens)))
            changed_tokens.append(token)
            parents.append(new)
            sure.append(tree.confidences[place])
    return DraftTree(tree.length, changed_tokens, parents, sure, tree.drafter, proposals)


@pytest.fixture
def draft(tmp_path: Path) -> Eager:
    directory = save_toy(tmp_path / "draft", VOCABULARY, seed=9)
    options = {"children": 2, "ahead": 4, "least_value": 0.0, "rows": 512, "pages": 512, "page_size": 8}
    fingerprint = Tokenizer.load(directory).fingerprint
    return Eager(DrafterContext(fingerprint, VOCABULARY, 256, directory, dtype="float32", options=options))


def law_statistic(
    make_engine: MakeEngine,
    draft: ModelDrafter,
    replacement: bool,
    truncation: Truncation = Truncation(),  # noqa: B008 - it is immutable
    draws: int = 1_000,
) -> tuple[float, float]:
    """Chi-square of the engine's answers for many seeds, and its bound."""
    engine = make_engine(VOCABULARY, [draft], rule=Rejection({"replacement": replacement}))
    dice = [Sampling(TEMPERATURE, truncation, seed * 7919) for seed in range(draws)]
    requests = [Request(f"r{seed}", "t", PROMPT, each, max_tokens=3) for seed, each in enumerate(dice)]
    law, said = exact_law(engine, truncation), answers(engine, requests)
    assert accepted_guesses(engine)["model"] > draws / 10
    statistic, degrees = chi_square(law, said)
    return statistic, degrees + 5 * (2 * degrees) ** 0.5


@pytest.mark.parametrize(
    ("replacement", "truncation"),
    [(False, Truncation()), (False, Truncation(top_k=3, top_p=0.9)), (True, Truncation()), (True, Truncation(top_k=3))],
)
def test_three_tokens_have_the_targets_joint_distribution(
    make_engine: MakeEngine, draft: ModelDrafter, replacement: bool, truncation: Truncation
) -> None:
    statistic, most = law_statistic(make_engine, draft, replacement, truncation)
    assert statistic < most


def likeliest_first(proposed: Proposals) -> Proposals:
    """Guesses in the order of their probabilities."""
    chances = [dict(zip(q.tokens, q.probabilities, strict=True)) for _, q in proposed]
    return [(sorted(tokens, key=lambda t: -p[t]), q) for (tokens, q), p in zip(proposed, chances, strict=True)]


def of_another_q(proposed: Proposals) -> Proposals:
    """Guesses with the reversed distribution in place of their own."""
    return [(tokens, Proposal(q.tokens, q.probabilities[::-1], q.replacement)) for tokens, q in proposed]


@pytest.mark.parametrize("wrong", [likeliest_first, of_another_q])
@either_way
def test_a_drafter_that_does_not_tell_what_it_drew_from_breaks_the_law(
    make_engine: MakeEngine, draft: Eager, wrong: Callable[[Proposals], Proposals], replacement: bool
) -> None:
    draft.change = wrong
    statistic, most = law_statistic(make_engine, draft, replacement, draws=500)
    assert statistic > most


def test_guesses_drawn_the_other_way_are_not_used_and_counted(make_engine: MakeEngine) -> None:
    engine, number = make_engine(VOCABULARY, rule=Rejection({"replacement": True})), 1
    engine.submit(Request("r", "t", PROMPT, Sampling(1.0, seed=3), max_tokens=8))
    engine.step()
    for replacement in (False, True):
        q = {-1: Proposal([0, 1], [0.5, 0.5], replacement)}
        engine.offer(number, DraftTree(len(PROMPT) + 1, [1, 1], [-1, -1], [0.5, 0.3], "m", q), "there")
    engine.step()
    assert engine.tally.guesses.unusable == {"m": 1}
    assert bought_guesses(engine) == {"m": 2}


def test_guesses_that_were_not_drawn_are_not_used_and_counted(make_engine: MakeEngine) -> None:
    engine = make_engine(VOCABULARY, [EverythingDrafter(VOCABULARY, 1)], rule=Rejection({}))
    engine.submit(Request("warm", "t", PROMPT, Sampling(1.0, seed=3), max_tokens=8))
    while engine.busy:
        engine.step()
    assert bought_guesses(engine)["everything"] == 0
    assert engine.tally.guesses.unusable["everything"] > 3
    engine.submit(Request("cold", "t", PROMPT, Sampling(0.0), max_tokens=12))
    while engine.busy:
        engine.step()
    assert accepted_guesses(engine)["everything"] > 3


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
