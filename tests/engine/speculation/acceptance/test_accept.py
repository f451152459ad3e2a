"""The walk of the target's draws through a tree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.speculation.acceptance.accept import walk


def test_without_guesses_one_token_is_decided() -> None:
    accepted = walk([], [], [7])
    assert (accepted.rows, accepted.tokens) == ([0], [7])


def test_right_guesses_are_followed_and_the_target_adds_one() -> None:
    accepted = walk([4, 7, 8], [-1, -1, 1], [7, 0, 8, 3])
    assert (accepted.rows, accepted.tokens) == ([0, 2, 3], [7, 8, 3])


def test_a_wrong_guess_ends_the_walk() -> None:
    assert walk([4], [-1], [5, 9]).tokens == [5]


@given(st.data())
def test_the_tokens_are_those_of_one_draw_after_another(data: st.DataObject) -> None:
    target = data.draw(st.dictionaries(st.lists(st.integers(0, 2), max_size=6).map(tuple), st.integers(0, 2)))
    size = data.draw(st.integers(0, 10))
    guesses = [data.draw(st.integers(0, 2)) for _ in range(size)]
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(size)]
    histories: list[tuple[int, ...]] = [()]
    for token, parent in zip(guesses, parents, strict=True):
        histories.append((*histories[parent + 1], token))
    drawn = [target.get(history, 0) for history in histories]
    tokens = walk(guesses, parents, drawn).tokens
    history: tuple[int, ...] = ()
    for token in tokens:
        assert token == target.get(history, 0)
        history = (*history, token)
