"""Positions and slots of the rows of a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.kernels.batch import RaggedBatch, SequenceRows, Tree


def test_rows_of_a_chunk_follow_each_other_through_the_pages() -> None:
    batch = RaggedBatch.build([SequenceRows(5, 3, [7, 2])], page_size=4)
    assert batch.positions.tolist() == [3, 4, 5, 6, 7]
    assert batch.slots.tolist() == [31, 8, 9, 10, 11]


def test_rows_of_a_tree_stand_at_their_depth_and_lie_in_their_order() -> None:
    batch = RaggedBatch.build([SequenceRows(4, 6, [1, 0, 2], parents=[-1, 0, 0, 2])], page_size=4)
    assert batch.positions.tolist() == [6, 7, 7, 8]
    assert batch.slots.tolist() == [2, 3, 8, 9]


def test_a_step_may_bring_the_last_nodes_of_a_tree_alone() -> None:
    batch = RaggedBatch.build([SequenceRows(2, 2, range(3), parents=[-1, -1, 1, 0, 2])], page_size=4)
    assert batch.positions.tolist() == [3, 4]
    assert batch.slots.tolist() == [5, 6]


def test_sequences_follow_each_other_without_padding() -> None:
    batch = RaggedBatch.build([SequenceRows(2, 0, [3]), SequenceRows(1, 5, [0, 1]), SequenceRows(3, 0, [2])], 4)
    assert batch.starts == [0, 2, 3]
    assert batch.rows == 6
    assert batch.slots.tolist() == [12, 13, 5, 8, 9, 10]


@given(st.data())
def test_a_node_sees_itself_and_what_its_parent_sees(data: st.DataObject) -> None:
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(data.draw(st.integers(1, 70)))]
    rows = data.draw(st.integers(1, len(parents)))
    tree = Tree.from_parents(parents)
    visible = tree.visible(rows)
    assert visible.shape == (rows, len(parents))
    for row, node in enumerate(range(len(parents) - rows, len(parents))):
        path = set()
        while node >= 0:
            path.add(node)
            node = parents[node]
        assert set(visible[row].nonzero()[0].tolist()) == path


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (SequenceRows(0, 0, [0]), "0 rows behind 0 tokens: at least 1 row"),
        (SequenceRows(1, -1, [0]), "1 rows behind -1 tokens"),
        (SequenceRows(2, 3, [0]), "1 pages of 4 do not hold 3 tokens and 2 rows"),
        (SequenceRows(1, 0, [0, 1], parents=[-1] * 9), "2 pages of 4 do not hold 0 tokens and 9 rows"),
        (SequenceRows(3, 0, [0], parents=[-1, 0]), "a tree of 2 nodes has no 3 rows"),
        (SequenceRows(2, 0, [0], parents=[-1, 1]), "parent 1 of node 1 is not one of -1 to 0"),
        (SequenceRows(1, 0, [0], parents=[-2]), "parent -2 of node 0 is not one of -1 to -1"),
    ],
)
def test_rows_that_cannot_be_are_refused(sequence: SequenceRows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RaggedBatch.build([sequence], page_size=4)


def test_a_step_without_sequences_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        RaggedBatch.build([], page_size=4)
