"""The prediction drafter follows the prediction along the answer, and finds its place again after differences."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.sampling import Sampling
from outrider.engine.speculation import DrafterContext, DrafterError, DraftTree, Opening
from outrider.engine.speculation.drafters.drafter import make_drafter
from outrider.engine.speculation.drafters.prediction_drafter import PredictionDrafter

PROMPT = [90, 91]
TEXT = list(range(10, 40))


class Followed:
    """One sequence of a drafter."""

    def __init__(self, predicted: list[int], *, most: int = 62, emitted: tuple[int, ...] = ()) -> None:
        self.drafter, self.length = PredictionDrafter(DrafterContext("v", 100, 4096)), len(PROMPT) + len(emitted)
        opening = Opening([*PROMPT, *emitted], Sampling(0.0), most, "t", len(PROMPT), prediction=predicted)
        self.drafter.open(1, opening)

    def after(self, *tokens: int) -> DraftTree | None:
        """The chain once the target has decided ``tokens``, in one step; None for no guesses."""
        if tokens:
            self.drafter.commit(1, self.length, tokens)
            self.length += len(tokens)
        drafted = self.drafter.draft()
        assert all(session == 1 and tree.length == self.length for session, tree in drafted)
        assert all(list(tree.parents) == list(range(-1, len(tree.tokens) - 1)) for _, tree in drafted)
        return drafted[0][1] if drafted else None

    def guesses(self, *tokens: int) -> list[int]:
        """The tokens of the chain."""
        tree = self.after(*tokens)
        return [] if tree is None else list(tree.tokens)


def test_the_answer_is_guessed_from_its_beginning_as_far_as_a_tree_goes() -> None:
    followed = Followed(TEXT, most=8)
    assert followed.guesses() == TEXT[:8]
    assert followed.guesses(*TEXT[:3]) == TEXT[3:11]
    assert followed.guesses(*TEXT[3:25]) == TEXT[25:]
    assert followed.guesses(*TEXT[25:]) == []


def test_an_answer_that_another_engine_began_is_followed_from_its_end() -> None:
    assert Followed(TEXT, emitted=(*TEXT[:4], 77, *TEXT[5:7])).guesses() == TEXT[7:]


def test_guesses_are_sure_while_the_answer_follows_and_not_after_a_difference() -> None:
    followed, sure = Followed(TEXT), []
    for tokens in ([], TEXT[:1], TEXT[1:8], TEXT[8:16]):
        tree = followed.after(*tokens)
        assert tree is not None
        assert list(tree.confidences) == sorted(tree.confidences)
        sure.append(tree.confidences[0])
    assert sure == sorted(set(sure))
    assert sure[-1] > 0.9
    assert followed.after(77) is None
    again = followed.after(TEXT[17])
    assert again is not None
    assert sure[0] < again.confidences[0] < sure[-1]
    new = Followed(TEXT).after(77, TEXT[17])
    assert new is None or new.confidences[0] < again.confidences[0]


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        pytest.param([*TEXT[:5], 77], [], id="nothing, after a token that is not there"),
        pytest.param([*TEXT[:5], 77, *TEXT[6:8]], TEXT[8:], id="one token for another"),
        pytest.param([*TEXT[:5], 77, 78, 79, *TEXT[6:8]], TEXT[8:], id="three tokens for one"),
        pytest.param([*TEXT[:5], 77, 78, *TEXT[5:6]], TEXT[6:], id="two new tokens, and the next predicted one"),
        pytest.param([*TEXT[:5], *TEXT[9:10]], TEXT[10:], id="a few predicted tokens left out"),
        pytest.param([*TEXT[:5], *TEXT[25:27]], TEXT[27:], id="many predicted tokens left out"),
        pytest.param([*TEXT[:20], *TEXT[3:5]], TEXT[5:], id="back to what was predicted before"),
        pytest.param([77, 78, 79, *TEXT[:1]], TEXT[1:], id="something before the predicted beginning"),
        pytest.param([*TEXT, 77, *TEXT[2:4]], TEXT[4:], id="on from the end of the prediction"),
    ],
)
def test_the_place_is_found_again(answer: list[int], rest: list[int]) -> None:
    assert Followed(TEXT).guesses(*answer) == rest
    step_by_step = Followed(TEXT)
    assert [step_by_step.guesses(token) for token in answer][-1] == rest


def test_of_equal_matches_the_next_one_counts_and_a_longer_one_before_all() -> None:
    predicted = [1, 2, 30, 5, 5, 1, 2, 31, 5, 5, 4, 1, 2, 32]
    assert Followed(predicted).guesses(1, 2, 30, 5, 5, 9, 1, 2)[:1] == [31]
    assert Followed(predicted).guesses(1, 2, 30, 5, 5, 1, 2, 31, 9, 1, 2)[:1] == [32]
    assert Followed(predicted).guesses(1, 2, 30, 9, 5, 4, 1, 2)[:1] == [32]
    assert Followed(predicted).guesses(*predicted, 9, 5, 5, 1, 2)[:1] == [31]


def test_a_prediction_is_silent_without_the_answer_s_tokens_and_unsure_where_few_follow() -> None:
    followed, dice = Followed(TEXT), random.Random(1)
    assert {followed.after(dice.randrange(60, 90)) for _ in range(50)} == {None}
    for _ in range(50):
        tree = followed.after(TEXT[dice.randrange(10)], 77, TEXT[dice.randrange(20, 29)])
        assert tree is None or tree.confidences[0] < 0.5


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.lists(st.integers(0, 3), max_size=9), max_size=9))
def test_guesses_are_predicted_tokens_in_their_order(predicted: list[int], parts: list[list[int]]) -> None:
    followed, answer = Followed(predicted, most=5), list[int]()
    for part in parts:
        guesses, answer = followed.guesses(*part), answer + part
        assert guesses in [predicted[at : at + 5] for at in range(len(predicted) + 1)]
        pairs = [end for end, pair in enumerate(pairwise(predicted), 2) if [*pair] == answer[-2:]]
        assert not part or not pairs or guesses in [predicted[end : end + 5] for end in pairs]


def test_one_prediction_serves_one_session_and_ends_with_it() -> None:
    drafter = PredictionDrafter(DrafterContext("v", 100, 4096))
    for session, predicted, tenant in ((1, [1, 2, 3], "a"), (2, [1, 5, 6], "b"), (3, [1, 7, 8], "b")):
        drafter.open(session, Opening([9], Sampling(0.0), 31, tenant, 1, prediction=predicted))
    drafter.close(3)
    for session in (1, 2, 3):
        drafter.commit(session, 1, [1])
    assert [(session, list(tree.tokens)) for session, tree in drafter.draft()] == [(1, [2, 3]), (2, [5, 6])]
    drafter.forget("b")
    for session in (1, 2):
        drafter.commit(session, 2, [2])
    assert [(session, list(tree.tokens)) for session, tree in drafter.draft()] == [(1, [3])]


def test_it_runs_where_predictions_are_and_takes_no_options() -> None:
    with pytest.raises(DrafterError, match="needs predictions of requests: it runs in the verifier only"):
        make_drafter(PredictionDrafter, "prediction", DrafterContext("v", 100, 4096))
    with pytest.raises(DrafterError, match="takes no options, not colour"):
        PredictionDrafter(DrafterContext("v", 100, 4096, options={"colour": 1}))
