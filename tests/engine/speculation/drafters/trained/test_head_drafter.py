"""The head drafter guesses as the equations say, for several sequences, after commits; and changes no answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from outrider.engine.models.llama import LlamaModel
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DraftTree, Opening
from outrider.engine.speculation.drafters.drafter import make_drafter
from outrider.engine.speculation.drafters.trained.eagle_trees import CompiledEagleTrees
from outrider.engine.speculation.drafters.trained.head_drafter import HeadDrafter
from outrider.engine.speculation.trees.price import StepCosts
from outrider.kernels.philox import log_exponentials
from outrider.kernels.race_sample import Truncation, race_sample
from torch import Tensor

from tests.engine.engines import MakeEngine, accepted_guesses, bought_guesses, requests, said
from tests.engine.speculation.heads.plain import PlainBlock, PlainEagle
from tests.engine.speculation.heads.published import BLOCKS, EAGLES, TARGET, VOCABULARY, Published, dspark, eagle3
from tests.kernels.choosing import kernels
from tests.toy_model import save_toy

Make = Callable[[], Published]
HEADS: dict[str, Make] = EAGLES | BLOCKS
GREEDY = Sampling(0.0)


@pytest.fixture(scope="module", params=["auto", "torch"])
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    """A target on the compiled decoder, where there is one, and on torch; its heads run likewise."""
    with kernels(request.param):
        yield LlamaModel.load(save_toy(tmp_path_factory.mktemp("models") / "toy", VOCABULARY), dtype="float32")


def drafter(directory: Path, target: LlamaModel, **options: object) -> HeadDrafter:
    context = DrafterContext(
        "v", target.config.vocab_size, 256, directory, options=options, target=target, config=target.config
    )
    made = make_drafter(HeadDrafter, "head", context)
    assert isinstance(made, HeadDrafter)
    return made


class Said:
    """A sequence with random tokens and states, as an engine passes it to a drafter.

    Args:
        made: the drafter.
        number: of the session.
        prompt: tokens of the prompt.
        chunks: rows of the steps that compute the prompt.
        skipped: tokens of the prompt that were computed before, and have no states.
    """

    def __init__(
        self, made: HeadDrafter, number: int, prompt: int, chunks: list[int], skipped: int = 0, **opening: object
    ) -> None:
        self.made, self.number, self.skipped = made, number, skipped
        self.dice = torch.Generator().manual_seed(number)
        self.tokens = self.random(prompt)
        self.states = torch.empty(0, len(made.traits.layers), TARGET)
        sampling = opening.pop("sampling", GREEDY)
        made.open(number, Opening(list(self.tokens), sampling, 63, prompt=prompt, **opening))  # type: ignore[arg-type]
        assert sum(chunks) == prompt - skipped
        for rows in chunks[:-1]:
            self.see(rows)
        self.decide(self.random(1), chunks[-1])

    def random(self, count: int) -> list[int]:
        return torch.randint(VOCABULARY, (count,), generator=self.dice).tolist()

    def see(self, rows: int) -> None:
        new = torch.randn(rows, len(self.made.traits.layers), TARGET, generator=self.dice)
        self.made.see(self.number, self.skipped + len(self.states), new)
        self.states = torch.cat([self.states, new])

    def decide(self, tokens: list[int], rows: int | None = None) -> None:
        self.made.commit(self.number, len(self.tokens), tokens)
        self.tokens += tokens
        self.see(len(tokens) if rows is None else rows)

    def chain(self, published: Published, target: LlamaModel, length: int) -> list[int]:
        """The plain reading's guesses."""
        if "block" not in published.facts:
            plain = PlainEagle(published, target.embed, target.logits)
            return plain.chain(self.tokens, self.states, length, self.skipped)
        block = PlainBlock(published, target.embed, target.logits)
        return block.chain(self.tokens[-1], len(self.tokens) - 1, self.states, self.skipped)[:length]


def scores_of(published: Published, target: LlamaModel, sequence: Said) -> Callable[[list[int]], Tensor]:
    """Scores of the token behind some guesses, by the plain reading."""
    if "block" not in published.facts:
        eagle = PlainEagle(published, target.embed, target.logits)
        return lambda path: eagle.after(sequence.tokens, sequence.states, path)
    plain, anchor = PlainBlock(published, target.embed, target.logits), sequence.tokens[-1]
    states = plain.states(anchor, len(sequence.tokens) - 1, sequence.states)
    return lambda path: plain.scores(states, anchor, path)


def ids_of(published: Published) -> list[int]:
    distances = published.tensors.get("d2t")
    return list(range(VOCABULARY)) if distances is None else [i + int(far) for i, far in enumerate(distances)]


def paths(tree: DraftTree) -> list[list[int]]:
    """The tokens from the top to each node."""
    found: list[list[int]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append([*(found[parent] if parent >= 0 else []), token])
    return found


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_guesses_are_those_of_the_equations_after_chunks_and_commits(
    toy: LlamaModel, tmp_path: Path, make: Make
) -> None:
    published = make()
    made = drafter(published.save(tmp_path), toy, children=1, rounds=3, least_value=0.0)
    sequences = [Said(made, 3, 9, [4, 4, 1]), Said(made, 8, 5, [5]), Said(made, 9, 8, [2, 3], skipped=3)]
    for _ in range(3):
        trees = dict(made.draft())
        assert set(trees) == {3, 8, 9}
        for sequence in sequences:
            tree = trees[sequence.number]
            assert tree.length == len(sequence.tokens)
            assert tree.tokens == sequence.chain(published, toy, 3)
            assert tree.parents == [-1, 0, 1][: len(tree.tokens)]
        assert made.draft() == []
        sequences[0].decide([*list(trees[3].tokens)[:2], *sequences[0].random(1)])  # two guesses were right
        sequences[1].decide(sequences[1].random(1))
        sequences[2].decide([*trees[9].tokens, *sequences[2].random(1)])


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_every_node_of_a_tree_has_the_share_of_its_own_path(toy: LlamaModel, tmp_path: Path, make: Make) -> None:
    published = make()
    made = drafter(published.save(tmp_path), toy, children=3, rounds=3, rows=3, nodes=40, least_value=0.0, row_cost=0.0)
    sequence = Said(made, 1, 6, [6])
    [(_, tree)] = made.draft()
    scores, ids, plain = scores_of(published, toy, sequence), ids_of(published), None
    assert len(tree.tokens) == 3 * (1 + 3 + 3)
    if published.facts.get("confidence"):
        plain = PlainBlock(published, toy.embed, toy.logits)
        states = plain.states(sequence.tokens[-1], len(sequence.tokens) - 1, sequence.states)
    for path, confidence in zip(paths(tree), tree.confidences, strict=True):
        shares = scores(path[:-1]).softmax(-1)
        share, best = float(shares[ids.index(path[-1])]), float(shares.max())
        if plain is not None:
            likely = plain.confidence(states, sequence.tokens[-1], path[:-1])
            share = likely if share == best else share * (1 - likely) / (1 - best)
        assert confidence == pytest.approx(share, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_dice_rank_the_guesses_of_a_sampled_request(toy: LlamaModel, tmp_path: Path, make: Make) -> None:
    published, sampling = make(), Sampling(2.0, Truncation(top_k=15), 77)
    made = drafter(published.save(tmp_path), toy, children=1, rounds=3, least_value=0.0)
    sequence = Said(made, 1, 6, [6], sampling=sampling)
    [(_, tree)] = made.draft()
    scores, ids = scores_of(published, toy, sequence), torch.tensor(ids_of(published))
    for depth, token in enumerate(tree.tokens):
        rolls = log_exponentials(77, torch.tensor([len(sequence.tokens) + depth]), VOCABULARY)[:, ids]
        wanted = race_sample(sampling.shape(scores(tree.tokens[:depth])[None]), rolls)
        assert token == ids[int(wanted)]


def test_a_long_prompt_is_read_in_pieces_and_as_one(toy: LlamaModel, tmp_path: Path) -> None:
    published = eagle3()
    made = drafter(published.save(tmp_path), toy, children=1, rounds=2, least_value=0.0)
    long = Said(made, 1, 250, [150, 3, 61, 36])
    short = Said(made, 2, 80, [20, 60])
    trees: dict[int, DraftTree] = {}
    calls = 0
    while made.reading:
        trees |= dict(made.draft())
        calls += 1
    assert calls == 2  # 330 states
    for sequence in (long, short):
        plain = PlainEagle(published, toy.embed, toy.logits)
        features = [plain.features(row) for row in sequence.states]
        state = plain.states(sequence.tokens[1:], features)[-1]
        assert trees[sequence.number].tokens[0] == plain.token(plain.scores(state))


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_trees_grow_no_deeper_than_guesses_pay(toy: LlamaModel, tmp_path: Path, make: Make) -> None:
    made = drafter(make().save(tmp_path), toy, children=1, rounds=3, least_value=0.0)
    sequence, lengths = Said(made, 1, 6, [6]), []
    for row_s in (0.0, 0.5, 1.0):
        made.price(StepCosts(1, lambda guesses, row_s=row_s: 1.0 + row_s * max(guesses - 1, 0)))
        [(_, tree)] = made.draft()
        lengths.append(len(tree.tokens))
        value = math.prod(tree.confidences[:-1])
        assert value >= row_s or len(tree.tokens) == 1
        sequence.decide(sequence.random(1))
    assert lengths[0] == 3
    assert lengths[2] == 1, "a second guess would take as long as a token"


def test_a_round_that_takes_as_long_as_a_token_is_run_seldom(toy: LlamaModel, tmp_path: Path) -> None:
    made = drafter(eagle3().save(tmp_path), toy, children=1, rounds=2, least_value=0.0)
    sequence, lengths = Said(made, 1, 6, [6]), []
    for _ in range(40):
        made.price(StepCosts(1, lambda guesses: 1e-6))
        lengths.append(len(made.draft()[0][1].tokens))
        sequence.decide(sequence.random(1))
    assert lengths[0] == 2
    assert lengths.count(2) < 5


def test_a_sequence_ends_before_anything_is_drafted(toy: LlamaModel, tmp_path: Path) -> None:
    made = drafter(eagle3().save(tmp_path), toy)
    Said(made, 1, 5, [5])
    made.close(1)
    sequence = Said(made, 2, 5, [5])
    assert dict(made.draft())[2].tokens[0] == sequence.chain(eagle3(), toy, 1)[0]


def test_prompts_are_computed_whole_only_where_the_options_say_so(toy: LlamaModel, tmp_path: Path) -> None:
    path = eagle3().save(tmp_path)
    assert not drafter(path, toy).traits.whole
    assert drafter(path, toy, whole=True).traits.whole


def test_pages_of_a_compiled_head_grow_and_are_overwritten_when_a_sequence_ends(
    toy: LlamaModel, tmp_path: Path
) -> None:
    made = drafter(eagle3().save(tmp_path), toy)
    if not isinstance(trees := made.trees, CompiledEagleTrees):
        pytest.skip("runs on torch")
    first, *_ = [Said(made, number, 99, [99]) for number in range(40)]
    while made.reading:
        made.draft()
    first.decide(first.random(1))
    assert dict(made.draft())[0].tokens[0] == first.chain(eagle3(), toy, 1)[0]
    pool = trees.compiled.pool
    assert pool.pages >= 40 * 4
    assert pool.data.any()
    for number in range(40):
        made.close(number)
    assert not pool.data.any()
    again = Said(made, 50, 99, [99])
    tree = dict(made.draft())[50]
    assert tree.tokens[0] == again.chain(eagle3(), toy, 1)[0]
    assert trees.compiled.pool is pool


def test_a_sequence_without_all_its_states_and_one_that_rests_get_no_tree(toy: LlamaModel, tmp_path: Path) -> None:
    made = drafter(dspark().save(tmp_path), toy)
    sequences = [Said(made, number, 5, [5]) for number in (1, 2, 3)]
    made.commit(1, 6, [4])  # its state comes later
    made.rest(2)
    made.see(3, 9, torch.randn(1, 2, TARGET))  # two are missing before: the drafter gives up
    assert made.draft() == []
    sequences[0].tokens.append(4)
    sequences[0].see(1)
    sequences[1].decide([3])
    sequences[2].decide([3])
    assert {number for number, _ in made.draft()} == {1, 2}
    made.close(1)
    made.open(4, Opening([1, 2, 3], Sampling(1.0), 63, proposes=True))
    made.commit(4, 3, [2])
    made.see(4, 0, torch.randn(3, 2, TARGET))
    assert made.draft() == []


@pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)
def test_answers_are_those_without_speculation(
    toy: LlamaModel, tmp_path: Path, make_engine: MakeEngine, make: Make
) -> None:
    wanted = requests(10, seed=5)
    plain = said(make_engine(), wanted)
    made = drafter(make().save(tmp_path), toy, nodes=16)
    engine = make_engine(drafters=[made])
    assert said(engine, wanted) == plain
    assert bought_guesses(engine)["head"] > 20
    assert accepted_guesses(engine)["head"] < bought_guesses(engine)["head"]
