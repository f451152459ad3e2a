"""The walk through verified trees: in a kernel as in Python, and as the verifier walks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.kernels.tree_walk import MOST_GUESSES, Trees, Walks, reference, triton
from outrider.verifier.acceptance.accept import walk

from tests.kernels.device import DEVICE, poison

_Tree = tuple[list[int], list[int], list[int]]


@st.composite
def tree(draw: st.DrawFn, most: int = 12) -> _Tree:
    """Guesses, parents and draws over so few tokens that paths are long and siblings the same."""
    size = draw(st.integers(0, most))
    tokens = st.integers(0, 2)
    guesses = draw(st.lists(tokens, min_size=size, max_size=size))
    parents = [draw(st.integers(max(-1, node - 3), node - 1)) for node in range(size)]
    return guesses, parents, draw(st.lists(tokens, min_size=size + 1, max_size=size + 1))


def packed(trees: list[_Tree]) -> Trees:
    def flat(part: int) -> torch.Tensor:
        return torch.tensor([value for tree in trees for value in tree[part]], dtype=torch.int32, device=DEVICE)

    sizes = torch.tensor([0] + [len(guesses) for guesses, _, _ in trees], dtype=torch.int32)
    return Trees(sizes.cumsum(0).int().to(DEVICE), flat(0), flat(1), flat(2))


def assert_walks_like(walks: Walks, trees: list[_Tree], depth: int) -> None:
    for index, (guesses, parents, drawn) in enumerate(trees):
        expected = walk(guesses, parents, drawn)
        kept = min(len(expected.rows), depth + 1)
        padding = [-1] * (depth + 1 - kept)
        assert walks.rows[index].tolist() == expected.rows[:kept] + padding
        assert walks.tokens[index].tolist() == expected.tokens[:kept] + padding
        assert int(walks.counts[index]) == kept


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(tree(), max_size=3), depth=st.integers(0, 13))
def test_it_walks_as_the_verifier_does(trees: list[_Tree], depth: int) -> None:
    poison()
    assert_walks_like(triton.tree_walk(packed(trees), depth), trees, depth)
    assert_walks_like(reference.tree_walk(packed(trees), depth), trees, depth)


def test_a_chain_of_the_greatest_length_is_followed_to_its_end() -> None:
    chain = ([7] * MOST_GUESSES, list(range(-1, MOST_GUESSES - 1)), [7] * MOST_GUESSES + [9])
    walks = triton.tree_walk(packed([chain, chain]), MOST_GUESSES)
    assert walks.counts.tolist() == [MOST_GUESSES + 1] * 2
    assert walks.rows[1].tolist() == list(range(MOST_GUESSES + 1))
    assert walks.tokens[1].tolist() == [7] * MOST_GUESSES + [9]


def test_of_guesses_of_the_same_token_the_eldest_is_followed() -> None:
    same: _Tree = ([5, 5, 6, 6], [-1, -1, 0, 1], [5, 6, 6, 2, 3])
    assert_walks_like(triton.tree_walk(packed([same]), 2), [same], 2)
    assert triton.tree_walk(packed([same]), 2).rows.tolist() == [[0, 1, 3]]


def test_a_row_that_drew_nothing_ends_the_walk() -> None:
    nothing: _Tree = ([4, -1, -1], [-1, 0, -1], [4, -1, 8, 8])
    for walks in (triton.tree_walk(packed([nothing]), 3), reference.tree_walk(packed([nothing]), 3)):
        assert walks.rows.tolist() == [[0, 1, -1, -1]]
        assert walks.tokens.tolist() == [[4, -1, -1, -1]]
        assert walks.counts.tolist() == [2]


def test_a_sequences_walk_does_not_depend_on_the_others() -> None:
    trees: list[_Tree] = [([1, 2], [-1, 0], [1, 2, 3]), ([], [], [9]), ([3, 1], [-1, -1], [1, 5, 6])]
    together = triton.tree_walk(packed(trees), 2)
    for index, alone in enumerate(trees):
        assert torch.equal(triton.tree_walk(packed([alone]), 2).rows[0], together.rows[index])
    backward = triton.tree_walk(packed(trees[::-1]), 2)
    assert torch.equal(backward.tokens.flip(0), together.tokens)


@pytest.mark.parametrize("walker", [triton.tree_walk, reference.tree_walk])
def test_tensors_that_do_not_fit_are_refused(walker) -> None:
    good = packed([([1], [-1], [1, 2])])
    with pytest.raises(ValueError, match=r"drawn are torch\.int32 \(1,\)"):
        walker(Trees(good.offsets, good.guesses, good.parents, good.drawn[:1]), 1)
    with pytest.raises(ValueError, match=r"guesses are torch\.int64"):
        walker(Trees(good.offsets, good.guesses.long(), good.parents, good.drawn), 1)
    with pytest.raises(ValueError, match="depth of -1"):
        walker(good, -1)
