"""Drafters without a model keep the promises of the `Drafter` protocol."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import Drafter, DrafterContext, DrafterError, DraftTree, Opening
from outrider.engine.speculation.drafters.ngram_drafter import NgramDrafter
from outrider.engine.speculation.drafters.random_drafter import RandomDrafter
from outrider.engine.speculation.drafters.suffix_drafter import SuffixDrafter

Make = Callable[[DrafterContext], Drafter]


@pytest.fixture(params=[NgramDrafter, RandomDrafter, SuffixDrafter])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


def test_trees_hang_from_the_current_end_and_hold_known_ids(make: Make) -> None:
    drafter, dice = make(DrafterContext("v", 5, 1000)), random.Random(1)
    lengths = dict.fromkeys(range(3), 20)
    for session in lengths:
        drafter.open(session, Opening([dice.randrange(5) for _ in range(20)], Sampling(0.0), 31))
    made = 0
    for _ in range(30):
        for session, tree in drafter.draft():
            assert tree.length == lengths[session]
            assert all(0 <= token < 5 for token in tree.tokens)
            assert all(0 <= confidence <= 1 for confidence in tree.confidences)
            made += 1
        session = dice.randrange(3)
        drafter.commit(session, lengths[session], [dice.randrange(5)])
        lengths[session] += 1
    assert made > 10
    assert drafter.draft() or not drafter.draft()


def test_a_closed_or_unknown_session_is_silent(make: Make) -> None:
    drafter = make(DrafterContext("v", 5, 1000))
    drafter.open(1, Opening([1, 2, 1, 2, 1], Sampling(0.0), 31))
    drafter.close(1)
    drafter.commit(1, 5, [2])
    drafter.commit(7, 3, [2])
    drafter.close(7)
    assert drafter.draft() == []


def test_an_unknown_option_is_refused(make: Make) -> None:
    with pytest.raises(DrafterError, match="colour"):
        make(DrafterContext("v", 5, 1000, options={"colour": 1}))


def test_ngram_copies_the_tokens_after_the_last_occurrence() -> None:
    drafter = NgramDrafter(DrafterContext("v", 100, 1000))
    drafter.open(1, Opening([1, 2, 3, 4, 5, 9, 2, 3], Sampling(0.0), 31))
    [(session, tree)] = drafter.draft()
    assert (session, list(tree.tokens)) == (1, [4, 5, 9, 2, 3])
    drafter.commit(1, 8, [4])
    [(_, tree)] = drafter.draft()
    assert list(tree.tokens)[:2] == [5, 9]
    drafter.commit(1, 9, [77])
    assert drafter.draft() == []


def test_ngram_is_as_sure_as_the_match_before_each_guess_is_long() -> None:
    drafter = NgramDrafter(DrafterContext("v", 100, 1000))
    drafter.open(1, Opening([9, 1, 2, 3, 4, 5, 8, 1, 2, 3], Sampling(0.0), 31))
    [(_, tree)] = drafter.draft()
    assert list(tree.tokens)[:3] == [4, 5, 8]
    assert tree.confidences[:3] == pytest.approx([1 - 1 / 3, 1 - 1 / 4, 1 - 1 / 5])


@given(st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=8))
def test_ngram_finds_the_latest_place_of_the_longest_run(parts: list[list[int]]) -> None:
    drafter, tokens = NgramDrafter(DrafterContext("v", 3, 1000, options={"most": 3})), [0, *parts[0]]
    drafter.open(1, Opening(tokens, Sampling(0.0), 31))
    for part in parts[1:]:
        _check_ngram(drafter.draft(), tokens)
        drafter.commit(1, len(tokens), part)
        tokens = tokens + part
    _check_ngram(drafter.draft(), tokens)


def _check_ngram(drafted: list[tuple[int, DraftTree]], tokens: list[int]) -> None:
    for length in (4, 3, 2):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[-length:]:
                assert [list(tree.tokens) for _, tree in drafted] == [tokens[end : end + 3]]
                return
    assert drafted == []
