"""What is mixed into the requests whose answers are compared."""

from __future__ import annotations

import json

from outrider.gateway.openai.bodies import read_completion
from outrider.loadtest.identity import MIXED, mixed, told


def test_every_combination_comes_up_and_the_first_is_none() -> None:
    names = list(MIXED)
    bodies = [mixed(index, names) for index in range(2 ** len(names))]
    assert bodies[0] == {}
    assert len({json.dumps(body) for body in bodies}) == 2 ** len(names)
    assert bodies[-1] == {key: value for extra in MIXED.values() for key, value in extra.items()}


def test_what_is_mixed_in_is_honoured_by_the_gateway() -> None:
    for body in [*MIXED.values(), mixed(2 ** len(MIXED) - 1, list(MIXED))]:
        read_completion(json.dumps({"prompt": "p", **body}).encode()).generation()


def test_tokens_and_log_probabilities_of_every_choice_are_compared() -> None:
    one = {"outrider": {"tokens": [1]}, "choices": [{"logprobs": None}]}
    two = {"outrider": {"choices": [{"tokens": [1]}, {"tokens": [2]}]}, "choices": [{"logprobs": 0}, {"logprobs": 1}]}
    assert told(one) == [([1], None)]
    assert told(two) == [([1], 0), ([2], 1)]
