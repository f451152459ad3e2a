"""Draft trees: pruning to decided tokens, and merging."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.speculation import DraftTree, MergedTree, merge

TREE = DraftTree(10, [5, 6, 7, 8, 9], [-1, -1, 0, 0, 3], [0.6, 0.3, 0.5, 0.4, 0.9], "model")


def paths(tokens: list[int], parents: list[int]) -> set[tuple[int, ...]]:
    found_paths: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents, strict=True):
        found_paths.append((*(found_paths[parent] if parent >= 0 else ()), token))
    return set(found_paths)


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    size = draw(st.integers(0, 12))
    tokens = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    confidences = draw(st.lists(st.floats(0, 1), min_size=size, max_size=size))
    return DraftTree(10, tokens, parents, confidences, draw(st.sampled_from(["a", "b"])))


def test_a_tree_is_pruned_to_the_part_below_decided_tokens() -> None:
    rest = TREE.after([5])
    assert rest is not None
    assert rest.length == 11
    assert (list(rest.tokens), list(rest.parents), list(rest.confidences)) == ([7, 8, 9], [-1, -1, 1], [0.5, 0.4, 0.9])


def test_a_tree_that_disagrees_is_dropped() -> None:
    assert TREE.after([7]) is None
    assert TREE.after([5, 7, 1]) is None
    assert TREE.after([6]) is None


@pytest.mark.parametrize("parents", [[1, -1], [-1, 1], [-1, -2]])
def test_a_parent_that_does_not_stand_before_its_child_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="parent"):
        DraftTree(0, [1, 2], parents, [0.5, 0.5], "model")


@given(st.lists(trees(), max_size=4), st.integers(1, 6))
def test_merging_keeps_every_path_once(drafts: list[DraftTree], depth: int) -> None:
    merged = merge(drafts, depth)
    expected = {p for t in drafts for p in paths(list(t.tokens), list(t.parents)) if len(p) <= depth}
    merged_paths = paths(merged.tokens, merged.parents)
    assert merged_paths == expected
    assert len(merged) == len(expected)
    for node, parent in enumerate(merged.parents):
        assert parent < node
        assert merged.depths[node] == (merged.depths[parent] + 1 if parent >= 0 else 1)
        assert merged.values[node] <= (merged.values[parent] if parent >= 0 else 1)


@given(trees(), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_pruning_leaves_exactly_the_paths_that_go_on(tree: DraftTree, decided: list[int]) -> None:
    every = merge([tree], 99)
    rest = tree.after(decided)
    going_on = {p for p in paths(every.tokens, every.parents) if p[: len(decided)] == tuple(decided)}
    expected = {p[len(decided) :] for p in going_on} - {()}
    if rest is None:
        first_match = merge([tree], 99)
        assert not expected or len(first_match) < len(tree.tokens)
    else:
        assert paths(list(rest.tokens), list(rest.parents)) <= expected


def test_the_caller_maps_confidences_to_probabilities() -> None:
    merged = merge([TREE], 99, lambda drafter: lambda confidence: confidence / 2, least=0.07)
    assert (merged.tokens, merged.values) == ([5, 6, 7], [0.3, 0.15, 0.075])


def test_taking_nodes_renames_their_parents() -> None:
    merged = MergedTree([5, 6, 7], [-1, -1, 1], [0.6, 0.3, 0.2], [1, 1, 2], [0.6, 0.3, 0.7], ["m", "m", "m"])
    taken = merged.take([2, 1])
    assert (taken.tokens, taken.parents, taken.depths) == ([6, 7], [-1, 0], [1, 2])


def test_a_guess_of_two_trees_has_the_surer_drafter_and_the_first_drafter() -> None:
    first = DraftTree(3, [5, 6], [-1, 0], [0.4, 0.5], "first")
    surer = DraftTree(3, [5, 7], [-1, 0], [0.9, 0.8], "surer")
    merged = merge([first, surer], 9)
    assert merged.tokens == [5, 6, 7]
    assert merged.drafters == ["surer", "first", "surer"]
    assert merged.firsts == ["first", "first", "surer"]
    assert merged.take([0, 2]).firsts == ["first", "surer"]
