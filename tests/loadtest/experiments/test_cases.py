"""Cases that combine features of requests, and a share of them on a toy model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outrider.gateway.api.openai.bodies import read_chat
from outrider.gateway.api.responses.body import read_response
from outrider.loadtest.cases.bodies import body
from outrider.loadtest.cases.checks import differences, stops, violations
from outrider.loadtest.cases.features import FEATURES, Case, cases, pairs, possible, possible_pairs
from outrider.loadtest.cases.views import Choice, View
from outrider.loadtest.experiments import cases as experiment

from tests.thinking import save_thinking

NEUTRAL: Case = {name: values[0] for name, values in FEATURES.items()}


def test_every_possible_pair_of_values_comes_up_early() -> None:
    drawn = cases(60)
    assert set().union(*map(pairs, drawn)) == possible_pairs()
    assert all(map(possible, drawn))
    assert drawn == cases(60)
    assert cases(60, seed=1) != drawn


def test_the_gateway_takes_all_cases() -> None:
    ignored: list[str] = []
    for number, case in enumerate(cases(200)):
        made = json.dumps(body(case, number)).encode()
        if case["api"] == "chat":
            read_chat(made, ignored).generation()
        if case["api"] == "responses":
            read_response(made, ignored).generation([{"role": "user", "content": "a"}])
    assert not ignored


def view(**more: Any) -> View:
    return View([Choice(finish="stop", text="a", tokens=[1, 2], **more)], 5, 2, 0)


@pytest.mark.parametrize(
    ("case", "more", "fault"),
    [
        ({"thinking": "off"}, {"thought": "Hm"}, "there is a thought, which is off"),
        ({}, {"thought": "Hm</think>"}, "a mark of thoughts is in a text"),
        ({"tools": "required"}, {}, "there is no call, which has to be"),
        ({"tools": "auto"}, {"calls": [["add", '{"a": 1']]}, "calls end an answer that is not ended by them"),
        ({"structure": "schema"}, {}, "the text is not of its schema"),
        ({"structure": "regex"}, {}, "the text does not match its expression"),
        ({"n": "2"}, {}, "1 choices"),
        ({"logprobs": "2"}, {}, "0 log-probabilities of 2 tokens"),
    ],
)
def test_what_is_wrong_is_found(case: Case, more: dict[str, Any], fault: str) -> None:
    assert not violations(NEUTRAL, view())
    assert fault in violations(NEUTRAL | case, view(**more))


def test_differences_are_named_and_a_stopped_answer_is_the_beginning_of_a_free_one() -> None:
    other = View([Choice(finish="length", text="a the b", tokens=[1, 2])], 5, 2, 1)
    assert differences(view(), view()) == []
    assert differences(view(), other) == ["reasoning", "text", "finish"]
    case = NEUTRAL | {"stop": "word"}
    assert stops(case, view(), other) == ["the text does not end where it should"]
    stopped = View([Choice(finish="stop", text="a ", tokens=[1, 2])], 5, 2)
    assert stops(case, stopped, other) == []


@pytest.mark.timeout(600)
def test_a_share_of_the_cases_holds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = save_thinking(tmp_path / "toy")
    assert experiment.main(["--model", str(model), "--cases", "30", "--batch", "15"]) == 0, capfd.readouterr().out
    assert "30 cases, 0 with something wrong" in capfd.readouterr().out
