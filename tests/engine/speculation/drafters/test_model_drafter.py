"""The draft-model drafter: a tree kept after decided tokens equals a tree drafted anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate, pairwise
from operator import mul
from pathlib import Path

import pytest
import torch
from outrider.engine.errors import ModelError
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DrafterError, DraftTree, Opening
from outrider.engine.speculation.drafters.model_drafter import ModelDrafter
from outrider.engine.speculation.trees.guess_tree import GuessTree
from outrider.engine.speculation.trees.price import StepCosts
from outrider.engine.speculation.trees.shape import TreeShape
from outrider.engine.text import Tokenizer
from outrider.kernels.batch import RaggedBatch, SequenceRows
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample import Truncation, race_sample

from tests.kernels.choosing import kernels
from tests.toy_model import save_toy

VOCABULARY = 150
GREEDY, WARM = Sampling(0.0), Sampling(1.0, Truncation(top_k=20), 5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY)


@pytest.fixture(params=["native", "torch"])
def directory(saved: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The model, grown by the compiled library and an operator at a time."""
    with kernels(request.param):
        yield saved


def context(directory: Path, **options: object) -> DrafterContext:
    fingerprint = Tokenizer.load(directory).fingerprint
    return DrafterContext(fingerprint, VOCABULARY, 256, directory, dtype="float32", options=options)


def drafter(directory: Path, **options: object) -> ModelDrafter:
    return ModelDrafter(context(directory, **options))


def settle(made: ModelDrafter, rounds: int = 30) -> dict[int, DraftTree]:
    """The trees once there is nothing more to grow."""
    trees: dict[int, DraftTree] = {}
    for _ in range(rounds):
        improved = made.draft()
        if not improved:
            break
        trees |= dict(improved)
    return trees


def best_path(tree: DraftTree) -> list[int]:
    """The likeliest guess at each depth, going down."""
    path, parent = [], -1
    while children := [n for n, p in enumerate(tree.parents) if p == parent]:
        parent = max(children, key=lambda node: tree.confidences[node])
        path.append(tree.tokens[parent])
    return path


def greedy_continuation(made: ModelDrafter, tokens: list[int], count: int) -> list[int]:
    """The tokens of the drafter's model, one at a time."""
    continuation: list[int] = []
    for session in range(count):
        made.open(session, Opening(tokens + continuation, GREEDY, 31))
        continuation.append(best_path(settle(made)[session])[0])
        made.close(session)
    return continuation


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_a_kept_tree_equals_a_tree_drafted_anew(directory: Path, sampling: Sampling) -> None:
    made, dice = drafter(directory), random.Random(0)
    tokens = [dice.randrange(VOCABULARY) for _ in range(20)]
    made.open(1, Opening(tokens, sampling, 31))
    for _ in range(15):
        tree = settle(made, dice.randint(1, 6)).get(1)
        decided = best_path(tree)[: dice.randint(0, 4)] if tree is not None else []
        decided = [*decided, dice.randrange(VOCABULARY)] if dice.random() < 0.5 or not decided else decided
        made.commit(1, len(tokens), decided)
        tokens += decided
    kept = settle(made)[1]
    anew = drafter(directory)
    anew.open(1, Opening(tokens, sampling, 31))
    fresh = settle(anew)[1]
    assert kept.length == fresh.length == len(tokens)
    assert best_path(kept)[:4] == best_path(fresh)[:4]
    assert set(kept.tokens[:4]) == set(fresh.tokens[:4])


def test_a_tree_kept_over_pages_in_int8_equals_a_tree_drafted_anew(saved: Path) -> None:
    tokens = [number * 7 % VOCABULARY for number in range(40)]
    made, anew = (drafter(saved, kv_dtype="int8") for _ in range(2))
    made.open(1, Opening(tokens[:30], GREEDY, 31))
    for length in range(30, 40, 2):
        settle(made, 3)
        made.commit(1, length, tokens[length : length + 2])
    anew.open(1, Opening(tokens, GREEDY, 31))
    kept, fresh = settle(made)[1], settle(anew)[1]
    assert best_path(kept)[:4] == best_path(fresh)[:4]
    plain = drafter(saved)
    plain.open(1, Opening(tokens, GREEDY, 31))
    assert best_path(settle(plain)[1])[0] == best_path(fresh)[0]


def test_pages_of_an_unknown_kind_are_refused(saved: Path) -> None:
    with pytest.raises(ModelError, match="kv_dtype"):
        drafter(saved, kv_dtype="int3")


def test_the_likeliest_path_is_the_model_s_greedy_answer(directory: Path) -> None:
    made = drafter(directory, least_value=0.0)
    made.open(1, Opening([3, 1, 4, 1, 5], GREEDY, 63))
    continuation = greedy_continuation(drafter(directory), [3, 1, 4, 1, 5], 3)
    assert best_path(settle(made)[1])[:3] == continuation


def test_the_drafter_rolls_the_dice_of_the_token_it_guesses(directory: Path) -> None:
    made, tokens = drafter(directory), [3, 1, 4, 1, 5]
    made.open(1, Opening(tokens, WARM, 31))
    tree = settle(made)[1]
    model, path = LlamaModel.load(directory, dtype="float32"), best_path(tree)[:2]
    for depth, guess in enumerate(path):
        ids = tokens + path[:depth]
        batch = RaggedBatch.build([SequenceRows(len(ids), 0, [0], None)], 16)
        logits = model.logits(model.forward(torch.tensor(ids), batch, model.new_pool(1, 16))[-1:])
        dice = log_exponentials(WARM.seed, torch.tensor([len(ids)]), VOCABULARY)
        assert guess == int(race_sample(WARM.shape(logits), dice))


def test_sequences_drafted_together_get_the_trees_they_get_alone(directory: Path) -> None:
    together = drafter(directory)
    prompts = {session: [session, 7, 7, session] * session for session in range(1, 5)}
    for session, tokens in prompts.items():
        together.open(session, Opening(tokens, GREEDY, 31))
    trees = settle(together, 60)
    for session, tokens in prompts.items():
        alone = drafter(directory)
        alone.open(session, Opening(tokens, GREEDY, 31))
        assert best_path(trees[session])[:3] == best_path(settle(alone, 60)[session])[:3]


def depth(tree: DraftTree) -> int:
    """Of the deepest guess."""
    depths: list[int] = []
    for parent in tree.parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths)


def test_outside_a_verifier_each_run_of_the_model_returns_trees(directory: Path) -> None:
    made = drafter(directory, least_value=0.0)
    made.open(1, Opening([3, 1, 4, 1, 5], GREEDY, 31))
    assert [depth(made.draft()[0][1]) for _ in range(3)] == [1, 2, 3]


def test_a_tree_is_returned_after_the_set_number_of_rounds(saved: Path) -> None:
    made = drafter(saved, least_value=0.0, rounds=3)
    made.open(1, Opening([3, 1, 4, 1, 5], GREEDY, 31))
    assert depth(made.draft()[0][1]) == 3


@pytest.mark.parametrize(("row_cost", "grown"), [(1e9, [1, 1, 1]), (0.0, [1, 4, 6])])
def test_where_a_row_costs_much_a_run_grows_the_likeliest_node_alone(
    directory: Path, row_cost: float, grown: list[int]
) -> None:
    made = drafter(directory, least_value=0.0, row_cost=row_cost)
    made.open(1, Opening([3, 1, 4, 1, 5], GREEDY, 63))
    sizes = [0, *(len(made.draft()[0][1].tokens) for _ in grown)]
    assert [(after - before) // 4 for before, after in pairwise(sizes)] == grown


def test_a_drafter_reads_a_long_prompt_in_several_calls(directory: Path) -> None:
    made = drafter(directory, prefill_rows=8)
    made.open(1, Opening([7] * 20, GREEDY, 31))
    calls = [(made.reading, made.draft()) for _ in range(3)]
    assert [reading for reading, _ in calls] == [True, True, True]
    assert [bool(trees) for _, trees in calls] == [False, False, True]
    assert not made.reading


def test_a_paused_sequence_is_not_drafted_and_continues_from_its_tree(directory: Path) -> None:
    made, tokens = drafter(directory, least_value=0.0, ahead=60), [3, 1, 4, 1, 5]
    made.open(1, Opening(tokens, GREEDY, 31))
    assert made.draft()
    made.rest(1)
    assert (made.draft(), made.reading) == ([], False)
    made.open(2, Opening([9, 2, 6], GREEDY, 31))
    assert set(settle(made)) == {2}
    decided = greedy_continuation(drafter(directory), tokens, 2)
    made.commit(1, len(tokens), decided)
    kept = settle(made)[1]
    anew = drafter(directory, least_value=0.0, ahead=60)
    anew.open(1, Opening(tokens + decided, GREEDY, 31))
    fresh = settle(anew)[1]
    assert kept.length == fresh.length == len(tokens) + 2
    assert best_path(kept)[:4] == best_path(fresh)[:4]


@pytest.mark.parametrize(
    "sampling", [GREEDY, Sampling(0.8, Truncation(top_p=0.6), 3), Sampling(1.3, Truncation(min_p=0.1))]
)
def test_the_compiled_trees_are_the_others(saved: Path, sampling: Sampling) -> None:
    dice, options = random.Random(4), {"rounds": 1, "least_value": 1e-9}
    with kernels("native"):
        ours = drafter(saved, **options)
    with kernels("torch"):
        theirs = drafter(saved, **options)
    tokens = [dice.randrange(VOCABULARY) for _ in range(20)]
    for made in (ours, theirs):
        made.open(1, Opening(tokens, sampling, 40))
    for _ in range(12):
        tree, other = settle(ours, 3)[1], settle(theirs, 3)[1]
        assert tree.length == other.length
        assert (tree.tokens, tree.parents) == (other.tokens, other.parents)
        assert torch.tensor(tree.confidences).allclose(torch.tensor(other.confidences), atol=1e-4)
        decided = [*best_path(tree)[: dice.randint(0, 2)], dice.randrange(VOCABULARY)]
        for made in (ours, theirs):
            made.commit(1, tree.length, decided)


def values(tree: DraftTree) -> list[float]:
    """How likely the path to each node is."""
    values: list[float] = []
    for parent, confidence in zip(tree.parents, tree.confidences, strict=True):
        values.append(confidence * (values[parent] if parent >= 0 else 1.0))
    return values


def test_closed_sessions_leave_no_page_behind(directory: Path) -> None:
    made = drafter(directory, pages=40, page_size=8)
    for session in range(6):
        made.open(session, Opening([1, 2, 3] * 20, GREEDY, 31))
    trees = settle(made)
    assert 0 < len(trees) < 6
    for session in range(6):
        made.close(session)
    assert made.free_pages == 40
    made.open(9, Opening([1, 2, 3], GREEDY, 31))
    assert settle(made)


def test_a_sequence_beyond_the_drafts_context_is_left_alone(directory: Path) -> None:
    made = drafter(directory)
    made.open(1, Opening([1] * 256, GREEDY, 31))
    assert made.draft() == []
    made.open(2, Opening([1] * 254, GREEDY, 31))
    assert max(len(best_path(tree)) for tree in settle(made).values()) <= 3


def compiled_chains(saved: Path, rounds: int) -> ModelDrafter:
    with kernels("native"):
        made = drafter(saved, children=1, rounds=rounds, least_value=0.0)
    made.open(1, Opening([1, 2, 3], GREEDY, 31))
    return made


@pytest.mark.parametrize("row_s", [0.0, 0.02, 0.1, 1.0])
def test_compiled_trees_grow_no_deeper_than_guesses_pay(saved: Path, row_s: float) -> None:
    made = compiled_chains(saved, rounds=3)
    made.price(StepCosts(1, lambda guesses: 1.0 + row_s * max(guesses - 1, 0)))
    [(_, tree)] = made.draft()
    values = list(accumulate(tree.confidences, mul))
    assert all(value >= row_s for value in values[:-1])
    assert len(tree.tokens) == 3 or values[-1] < row_s
    assert len(tree.tokens) == {0.0: 3, 1.0: 1}.get(row_s, len(tree.tokens))


def test_a_round_that_takes_as_long_as_a_token_is_run_seldom(saved: Path) -> None:
    made, lengths = compiled_chains(saved, rounds=2), []
    for length in range(3, 43):
        made.price(StepCosts(1, lambda guesses: 1e-6))
        [(_, tree)] = made.draft()
        lengths.append(len(tree.tokens))
        made.commit(1, length, [(tree.tokens[0] + 1) % VOCABULARY])
    assert lengths[0] == 2
    assert lengths.count(2) < 5


def test_a_gap_in_decided_tokens_ends_the_session(directory: Path) -> None:
    made = drafter(directory)
    made.open(1, Opening([1, 2, 3], GREEDY, 31))
    settle(made)
    made.commit(1, 9, [4])
    assert made.draft() == []
    assert made.free_pages == TreeShape().pages


def test_another_vocabulary_or_option_is_refused(directory: Path) -> None:
    with pytest.raises(DrafterError, match="vocabulary"):
        ModelDrafter(DrafterContext("another", VOCABULARY, 256, directory))
    with pytest.raises(DrafterError, match="children"):
        drafter(directory, colour=1)
    with pytest.raises(DrafterError, match="model"):
        ModelDrafter(DrafterContext("any", VOCABULARY, 256))


def test_descending_keeps_the_rows_of_decided_guesses() -> None:
    tree = GuessTree()
    tree.add(-1, [5, 6], [0.6, 0.3])
    tree.grow(1)
    tree.add(1, [7], [0.5])
    tree.grow(0)
    tree.add(0, [8, 9], [0.5, 0.2])
    tree.grow(3)
    tree.add(3, [4], [0.9])
    rows, rest = tree.descend([5])
    assert rows == [1, 2]
    assert rest is not None
    assert [node.token for node in rest.nodes] == [8, 9, 4]
    assert rest.row_parents() == [-1]
    assert tree.descend([6, 7]) == ([0], None)
    assert tree.descend([1]) == ([], None)
    assert torch.tensor([node.value for node in rest.nodes]).allclose(torch.tensor([0.5, 0.2, 0.45]))
