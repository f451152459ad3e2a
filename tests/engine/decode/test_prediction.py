"""Predictions in the engine: the same tokens whatever is predicted, in fewer steps where it is right."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from outrider.engine.decode.engine import Engine
from outrider.engine.requests.output import Output, Usage
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.speculation import DrafterContext
from outrider.engine.speculation.drafters.ngram_drafter import NgramDrafter
from outrider.engine.speculation.drafters.prediction_drafter import PredictionDrafter

from tests.engine.drafters import EverythingDrafter
from tests.engine.engines import VOCABULARY, MakeEngine, bought_guesses, requests, run, said, tokens

LENGTH = 40
CONTEXT = DrafterContext("toy", VOCABULARY, 256)
Predict = Callable[[list[int]], list[int]]


def half_right(answer: list[int]) -> list[int]:
    """Every eighth token is another one."""
    return [(token + 1) % VOCABULARY if place % 8 == 5 else token for place, token in enumerate(answer)]


def absurd(answer: list[int]) -> list[int]:
    dice = random.Random(len(answer))
    return [dice.randrange(VOCABULARY) for _ in range(200)]


PREDICTIONS: dict[str, Predict] = {
    "right": lambda answer: answer,
    "half-right": half_right,
    "wrong": lambda answer: [(token + 7) % VOCABULARY for token in answer],
    "absurd": absurd,
    "of one token": lambda answer: answer[:1] * 200,
}


def predicted(plain: dict[str, list[int]], predict: Predict) -> list[Request]:
    """The requests that said ``plain``, with predictions."""
    return [replace(each, prediction=predict(plain[each.id])) for each in requests(12, LENGTH)]


def predicting(make_engine: MakeEngine, *others: object) -> Engine:
    return make_engine(VOCABULARY, [PredictionDrafter(CONTEXT), *others])


def usage(frames: list[Output]) -> Usage:
    last = frames[-1].usage
    assert last is not None
    return last


@pytest.fixture
def plain(make_engine: MakeEngine) -> dict[str, list[int]]:
    """The answers without guesses, greedy and sampled ones."""
    return said(make_engine(VOCABULARY), requests(12, LENGTH))


@pytest.mark.parametrize("name", PREDICTIONS)
def test_no_prediction_changes_a_token(make_engine: MakeEngine, plain: dict[str, list[int]], name: str) -> None:
    engine = predicting(make_engine, NgramDrafter(CONTEXT))
    assert said(engine, predicted(plain, PREDICTIONS[name])) == plain
    assert bought_guesses(engine)["prediction"]


def test_a_right_prediction_is_verified_many_tokens_a_step(
    make_engine: MakeEngine, plain: dict[str, list[int]]
) -> None:
    engine, each = predicting(make_engine), predicted(plain, PREDICTIONS["right"])
    told = [usage(frames) for frames in run(engine, each).values()]
    assert {cost.steps for cost in told} == {2}
    assert {cost.predicted for cost in told} == {(LENGTH - 2, 0)}


def test_differences_cost_some_steps(make_engine: MakeEngine, plain: dict[str, list[int]]) -> None:
    told = [usage(each) for each in run(predicting(make_engine), predicted(plain, half_right)).values()]
    assert all(cost.steps < LENGTH / 2 for cost in told)
    assert all(cost.predicted and cost.predicted[0] > LENGTH / 2 and cost.predicted[1] for cost in told)


def test_a_guess_of_several_drafters_counts_for_the_prediction(
    make_engine: MakeEngine, plain: dict[str, list[int]]
) -> None:
    engine = predicting(make_engine, EverythingDrafter(VOCABULARY, 1))
    frames = run(engine, predicted(plain, PREDICTIONS["right"]))
    for name, parts in frames.items():
        assert tokens(parts) == plain[name]
        guessed = [each for part in parts for each in part.guessed_by]
        assert set(guessed) <= {"", "prediction"}
        assert usage(parts).predicted == (guessed.count("prediction"), 0)
        assert usage(parts).accepted_tokens == guessed.count("prediction")


def test_without_a_prediction_the_drafter_is_not_asked_and_nothing_is_counted(make_engine: MakeEngine) -> None:
    engine = predicting(make_engine)
    told = [usage(frames) for frames in run(engine, requests(12, LENGTH)).values()]
    assert {cost.predicted for cost in told} == {None}
    assert engine.tally.draft_wait_s == 0
    assert not bought_guesses(engine)


@pytest.mark.parametrize("speculation", [Speculation(off=True), Speculation(drafters=("ngram",))])
def test_who_excludes_the_drafter_gets_no_guesses_of_it(
    make_engine: MakeEngine, plain: dict[str, list[int]], speculation: Speculation
) -> None:
    engine = predicting(make_engine)
    each = [replace(request, speculation=speculation) for request in predicted(plain, PREDICTIONS["right"])]
    frames = run(engine, each)
    assert {name: tokens(parts) for name, parts in frames.items()} == plain
    assert {usage(parts).predicted for parts in frames.values()} == {(0, 0)}


def test_a_request_taken_over_goes_on_along_its_prediction(
    make_engine: MakeEngine, plain: dict[str, list[int]]
) -> None:
    each = [replace(request, emitted=plain[request.id][:9]) for request in predicted(plain, PREDICTIONS["right"])]
    for name, parts in run(predicting(make_engine), each).items():
        assert [token for part in parts for token in part.tokens] == plain[name][9:]
        assert usage(parts).steps == 2
