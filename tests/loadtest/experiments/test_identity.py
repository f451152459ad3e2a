"""Parameters mixed into compared requests, and the comparison of answers."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from outrider.gateway.api.openai.bodies import read_completion
from outrider.loadtest.load.answers import Answer, agrees
from outrider.loadtest.load.mixes import MIXED, TEMPERATURES, compared_requests, mixed


def test_every_combination_comes_up_and_the_first_is_none() -> None:
    names = list(MIXED)
    bodies = [mixed(index, names) for index in range(2 ** len(names))]
    assert bodies[0] == {}
    assert len({json.dumps(body) for body in bodies}) == 2 ** len(names)
    assert bodies[-1] == {key: value for extra in MIXED.values() for key, value in extra.items()}


def test_the_gateway_accepts_all_mixed_in_parameters() -> None:
    for body in [*MIXED.values(), mixed(2 ** len(MIXED) - 1, list(MIXED))]:
        read_completion(json.dumps({"prompt": "p", **body}).encode()).generation()


def test_a_beginning_of_the_questions_has_every_temperature_and_every_extra() -> None:
    beginning = compared_requests(600, 8, list(MIXED))[:100]
    assert len({question.number for question in beginning}) == 100
    assert set(Counter(question.body["temperature"] for question in beginning)) == set(TEMPERATURES)
    assert all(any(extra.items() <= question.body.items() for question in beginning) for extra in MIXED.values())


def event(index: int, tokens: list[int], text: str, finish: str | None = None, **logprobs: list) -> dict:
    return {
        "choices": [{"index": index, "text": text, "logprobs": logprobs or None, "finish_reason": finish}],
        "outrider": {"tokens": tokens},
        "usage": None,
    }


USAGE = {"completion_tokens_details": {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}}
EVENTS = [
    event(0, [1], "a", token_logprobs=[-0.5]),
    event(1, [7, 8], "xy", token_logprobs=[-1.0, -2.0]),
    event(0, [2], "b", "stop", token_logprobs=[-0.25]),
    event(1, [9], "z", "length", token_logprobs=[-3.0]),
    {"choices": [], "usage": USAGE},
]


def answer(events: list[dict]) -> Answer:
    answer = Answer()
    for each in events:
        answer.add(each)
    return answer


def test_a_stream_is_put_together_by_choice_however_it_was_cut() -> None:
    joined = [event(1, [7, 8, 9], "xyz", "length", token_logprobs=[-1.0, -2.0, -3.0]), EVENTS[0], EVENTS[2], EVENTS[4]]
    assert agrees(answer(joined), answer(EVENTS))
    assert answer(EVENTS).tokens == 5
    assert (answer(EVENTS).accepted, answer(EVENTS).rejected) == (3, 1)


@pytest.mark.parametrize("count", range(len(EVENTS)))
def test_the_part_that_a_leaving_client_received_is_compared(count: int) -> None:
    assert agrees(answer(EVENTS[:count]), answer(EVENTS))


@pytest.mark.parametrize(
    "wrong",
    [
        event(0, [3], "b", "stop", token_logprobs=[-0.25]),
        event(0, [2], "c", "stop", token_logprobs=[-0.25]),
        event(0, [2], "b", "length", token_logprobs=[-0.25]),
        event(0, [2], "b", "stop", token_logprobs=[-0.26]),
        event(0, [2, 2], "b", "stop", token_logprobs=[-0.25]),
    ],
)
def test_another_token_text_end_or_log_probability_is_a_difference(wrong: dict) -> None:
    other = [*EVENTS[:2], wrong, *EVENTS[3:]]
    assert not agrees(answer(other), answer(EVENTS))
    assert not agrees(answer(other[:-1]), answer(EVENTS))


def test_a_whole_answer_that_is_too_short_is_a_difference() -> None:
    assert not agrees(answer([*EVENTS[:3], EVENTS[4]]), answer(EVENTS))
