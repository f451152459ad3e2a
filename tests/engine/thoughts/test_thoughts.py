"""Thoughts in front of answers: the same whatever is guessed, within their budget, and before any grammar."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outrider.engine import LLM, RequestError, Result, SamplingParams, SettingsError
from outrider.engine.library.loading import engine_settings
from outrider.engine.speculation.policy.drafter_policy import AskAlways
from outrider.engine.target import Parts, Target

from tests.thinking import END, save_thinking

MESSAGES = [{"role": "user", "content": "def parse_args("}]
SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"enum": ["x", "y"]}},
    "required": ["b", "a"],
    "additionalProperties": False,
}
OPENED, CLOSED, OWN = {"enable_thinking": True}, {"enable_thinking": False}, dict[str, bool]()
MOST = 60


@pytest.fixture(scope="module", params=["token", "special", "text"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """A model whose marks are tokens with a text, tokens without, or text; the target itself is among its drafters."""
    kind, directory = request.param, tmp_path_factory.mktemp("models") / "toy"
    save_thinking(directory, tokens=kind != "text", special=kind == "special")
    settings = engine_settings(str(directory), str(directory), ["suffix"], {"page_size": 8})
    with LLM.over(Target.load(settings, Parts(policy=AskAlways))) as made:
        yield made


def ends(llm: LLM) -> dict[int, float]:
    """A bias by which thoughts end now and then, or answers begin with one."""
    token = llm.tokenizer.added_token(END)
    return {} if token is None else {token: 4.0}


def ask(llm: LLM, variables: dict[str, bool], **params: Any) -> Result:
    return llm.chat(MESSAGES, SamplingParams(**{"max_tokens": MOST, **params}), variables=variables)[0]


def told(result: Result) -> tuple[Any, ...]:
    usage = result.usage
    assert usage is not None
    return (
        result.reasoning,
        result.text,
        result.token_ids,
        result.finish_reason,
        usage.reasoning_tokens,
        result.logprobs,
    )


@pytest.mark.parametrize("seed", range(24))
def test_thoughts_and_answers_do_not_depend_on_guesses_or_steps(llm: LLM, seed: int) -> None:
    dice = random.Random(seed)
    variables = dice.choice([OPENED, CLOSED, OWN])
    params: dict[str, Any] = {
        "seed": seed,
        "temperature": dice.choice([0, 0.8]),
        "thinking_budget": dice.choice([None, 0, 1, 7, 20]),
        "json_schema": dice.choice([None, SCHEMA]),
        "stop": dice.choice([(), ("e", "\n"), ("</think>",)]),
        "logprobs": dice.choice([None, 2]),
        "logit_bias": ends(llm),
        "max_tokens": dice.choice([3, MOST]),
        "include_stop_str_in_output": dice.choice([False, True]),
        "skip_special_tokens": dice.choice([True, False]),
    }
    plain = ask(llm, variables, **params, speculation=False)
    guessed = ask(llm, variables, **params)
    assert told(guessed) == told(plain)
    stream = llm.stream_chat(MESSAGES, SamplingParams(**params), variables=variables)
    parts = list(stream)
    assert "".join(part.reasoning for part in parts) == plain.reasoning
    assert "".join(part.text for part in parts) == plain.text
    usage = plain.usage
    assert usage is not None
    if params["thinking_budget"] is not None:
        marks = len(llm.tokenizer.encode(f"<think>{END}", parse_special=True, add_special=False))
        assert usage.reasoning_tokens <= params["thinking_budget"] + marks
    if variables is CLOSED:
        assert (plain.reasoning, usage.reasoning_tokens) == ("", 0)
    if params["json_schema"] is not None and plain.finish_reason == "stop" and not params["stop"]:
        assert json.loads(plain.text).keys() == {"a", "b"}


@pytest.mark.parametrize("variables", [OPENED, CLOSED], ids=["opened", "closed"])
def test_special_tokens_are_shown_in_answers_and_not_in_thoughts(llm: LLM, variables: dict[str, bool]) -> None:
    shown = 0
    for seed in range(8):
        params = {"seed": seed, "thinking_budget": 9, "logit_bias": ends(llm) | {0: 4.0}, "ignore_eos": True}
        plain, whole = (ask(llm, variables, **params, skip_special_tokens=skips) for skips in (True, False))
        assert (whole.token_ids, whole.reasoning) == (plain.token_ids, plain.reasoning)
        assert whole.usage is not None
        answer = whole.token_ids[whole.usage.reasoning_tokens :]
        assert whole.text.lstrip() == llm.tokenizer.decode(answer, keep_special=True).lstrip()
        shown += whole.text != plain.text
    assert shown


def test_guesses_are_accepted_inside_a_thought_and_behind_it(llm: LLM) -> None:
    result = ask(llm, OPENED, seed=3, temperature=0, thinking_budget=20, json_schema=SCHEMA)
    usage = result.usage
    assert usage is not None
    thought, answer = result.guessed_by[: usage.reasoning_tokens], result.guessed_by[usage.reasoning_tokens :]
    assert any(thought)
    assert any(answer)


def test_a_budget_ends_the_thought_and_the_grammar_begins_behind_it(llm: LLM) -> None:
    mark = llm.tokenizer.encode(END, parse_special=True, add_special=False)
    for budget in (0, 5):
        result = ask(llm, OPENED, seed=1, thinking_budget=budget, json_schema=SCHEMA, max_tokens=200)
        assert result.token_ids[budget : budget + len(mark)] == mark
        assert result.finish_reason == "stop"
        assert json.loads(result.text).keys() == {"a", "b"}
        assert not result.reasoning if not budget else result.usage and result.usage.reasoning_tokens


def test_a_thought_does_not_end_an_answer_that_a_grammar_still_owes(llm: LLM) -> None:
    biases = {0: 100.0}  # the end of text
    result = ask(llm, OPENED, seed=1, logit_bias=biases, thinking_budget=9, json_schema=SCHEMA, max_tokens=200)
    assert 0 not in result.token_ids[:-1]
    assert json.loads(result.text).keys() == {"a", "b"}
    without = ask(llm, OPENED, seed=1, logit_bias=biases, thinking_budget=9)
    assert (without.text, without.finish_reason, len(without.token_ids)) == ("", "stop", 1)


def test_a_thought_that_is_cut_leaves_no_answer(llm: LLM) -> None:
    result = ask(llm, OPENED, seed=2, max_tokens=6, ignore_eos=True, logit_bias=dict.fromkeys(ends(llm), -100))
    assert (result.text, result.finish_reason) == ("", "length")
    assert result.reasoning.strip()
    assert result.usage is not None
    assert result.usage.reasoning_tokens == 6


def test_stop_texts_are_looked_for_behind_the_thought(llm: LLM) -> None:
    free = ask(llm, OPENED, seed=4, thinking_budget=12)
    stop = next(character for character in free.reasoning if character.isalpha())
    result = ask(llm, OPENED, seed=4, thinking_budget=12, stop=stop)
    assert result.reasoning == free.reasoning
    assert result.text == free.text.partition(stop)[0]


def test_an_answer_may_open_its_own_thought_under_a_grammar(llm: LLM) -> None:
    start = llm.tokenizer.encode("<think>", parse_special=True, add_special=False)
    biases = dict.fromkeys(start, 50.0) if len(start) == 1 else {}
    result = ask(llm, OWN, seed=5, logit_bias=biases, thinking_budget=4, json_schema=SCHEMA, max_tokens=200)
    assert json.loads(result.text).keys() == {"a", "b"}
    if biases:
        assert result.token_ids[0] == start[0]
        assert result.usage is not None
        assert result.usage.reasoning_tokens > 4


def test_texts_are_no_chats_and_have_no_thoughts(llm: LLM) -> None:
    result = llm.generate("a<think>\n", SamplingParams(max_tokens=8, seed=1))[0]
    assert result.reasoning == ""
    assert result.usage is not None
    assert result.usage.reasoning_tokens == 0
    with pytest.raises(RequestError, match="thinking_budget needs a chat"):
        llm.generate("a", SamplingParams(thinking_budget=3))


def test_the_marks_may_be_off_or_others(tmp_path: Path) -> None:
    directory = save_thinking(tmp_path / "toy")
    with (
        LLM(directory, drafters=(), reasoning="off") as off,
        LLM(directory, drafters=(), reasoning=("«", "»")) as other,
    ):
        assert ask(off, OPENED, seed=1).reasoning == ""
        assert ask(other, OPENED, seed=1).reasoning == ""
    with pytest.raises(SettingsError, match="reasoning must be auto, off"):
        LLM(directory, reasoning="deep")
