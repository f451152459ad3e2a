"""Reading bodies: supported parameters, and refusals that name the parameter and its allowed values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from outrider.gateway.api.openai.bodies import read_chat, read_completion
from outrider.gateway.request.generation import Messages, Text, Tokens, choice_seed
from outrider.mesh.errors import InvalidRequest
from outrider.wire.sampling import Speculation

HELLO = [{"role": "user", "content": "hello"}]


def _completion(**more: Any) -> Any:
    return read_completion(json.dumps({"model": "m", "prompt": "p"} | more).encode()).generation()


def _chat(**more: Any) -> Any:
    return read_chat(json.dumps({"model": "m", "messages": HELLO} | more).encode()).generation()


def _refusal(read: Any, body: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidRequest) as caught:
        read(body if isinstance(body, bytes) else json.dumps(body).encode()).generation()
    return caught.value.param, caught.value.message


def test_every_parameter_is_honoured() -> None:
    asked = _completion(
        max_tokens=7,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        seed=-5,
        stop=["a", "b"],
        stop_token_ids=[1, 2],
        ignore_eos=True,
        n=3,
        repetition_penalty=1.5,
        frequency_penalty=0.25,
        presence_penalty=-0.5,
        logit_bias={"7": -100, "9": 1.5},
        bad_words=["no", [4, 5]],
        min_tokens=2,
        logprobs=4,
        echo=True,
        speculation={"drafters": ["ngram"], "max_nodes": 9},
        priority=-3,
        return_drafts=True,
    )
    assert asked.priority == 3
    assert asked.speculation == Speculation(drafters=("ngram",), max_nodes=9, return_drafts=True)
    sampling = asked.sampling.to_proto()
    assert sampling.max_tokens == 7
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0, 3, 2**64 - 5)
    assert (round(sampling.top_p, 6), round(sampling.min_p, 6)) == (0.5, 0.1)
    assert (list(sampling.stop), list(sampling.stop_token_ids)) == (["a", "b"], [1, 2])
    assert sampling.ignore_eos
    assert asked.choices == 3
    assert (sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty) == (1.5, 0.25, -0.5)
    assert (dict(sampling.logit_bias), sampling.min_tokens) == ({7: -100, 9: 1.5}, 2)
    assert asked.bad_words == ("no", (4, 5))
    assert (sampling.logprobs, sampling.echo) == (4, True)
    assert (_chat(logprobs=True).sampling.logprobs, _chat(logprobs=True, top_logprobs=2).sampling.logprobs) == (0, 2)


def test_every_choice_has_a_seed_that_follows_from_the_requests() -> None:
    assert [choice_seed(seed, 0) for seed in (5, -5, 2**62)] == [5, -5, 2**62]
    assert [choice_seed(0, choice) for choice in (1, 2)] == [0xE220A8397B1DCDAF >> 11, 0x6E789E6AA1B965F4 >> 11]
    assert len({choice_seed(seed, choice) for seed in range(100) for choice in range(100)}) == 10_000


def test_defaults_are_those_of_openai() -> None:
    assert _completion().sampling.max_tokens == 16
    assert _chat().sampling.max_tokens is None
    sampling = _chat().sampling.to_proto()
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1, 0, 1, 0)


def test_a_seed_of_chance_is_drawn_for_each_request() -> None:
    seeds = {_chat().sampling.seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**53 for seed in seeds)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", Text("text")),
        (["text"], Text("text")),
        ([1, 2], Tokens([1, 2])),
        ([[1, 2]], Tokens([1, 2])),
        ([], Tokens([])),
    ],
)
def test_a_prompt_may_have_many_forms(prompt: Any, expected: Any) -> None:
    assert _completion(prompt=prompt).prompt == expected


def test_contents_in_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = _chat(messages=[{"role": "user", "content": parts, "name": "n"}])
    assert isinstance(asked.prompt, Messages)
    assert json.loads(asked.prompt.json) == [{"role": "user", "content": "ab", "name": "n"}]


def test_null_is_as_good_as_absent() -> None:
    assert _completion(max_tokens=None, stop=None, seed=None, n=None, logprobs=None).sampling.max_tokens == 16


def test_known_parameters_are_taken_at_values_that_ask_for_nothing() -> None:
    _chat(tools=[], tool_choice="auto", response_format={"type": "text"}, user="u", metadata={"a": "b"}, store=False)
    _completion(best_of=1, suffix="")
    _chat(stream=True, stream_options={"include_obfuscation": False})


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("max_tokens", -2, "max_tokens must be an integer of at least 1 (0 with echo), not -2"),
        ("max_tokens", 0, "max_tokens must be an integer of at least 1 (0 with echo), not 0"),
        ("max_tokens", "5", 'max_tokens must be an integer of at least 1 (0 with echo), not "5"'),
        ("max_tokens", True, "max_tokens must be an integer of at least 1 (0 with echo), not true"),
        ("max_tokens", 1.5, "max_tokens must be an integer of at least 1 (0 with echo), not 1.5"),
        ("temperature", 101, "temperature must be a number from 0 to 100, not 101"),
        ("temperature", "hot", 'temperature must be a number from 0 to 100, not "hot"'),
        ("top_p", 0, "top_p must be a number above 0 and at most 1, not 0"),
        ("seed", 2**70, f"seed must be an integer of 64 bits, not {2**70}"),
        ("stream", "yes", 'stream must be true or false, not "yes"'),
        ("speculation", "on", 'speculation must be "off", or an object with "drafters" (names),'),
        ("n", 0, "n must be an integer from 1 to 128, not 0"),
        ("n", True, "n must be an integer from 1 to 128, not true"),
        ("use_beam_search", True, "use_beam_search is not supported: leave it out, or set it to false"),
        ("logprobs", 21, "logprobs must be an integer from 0 to 20, not 21"),
        ("logprobs", True, "logprobs must be an integer from 0 to 20, not true"),
        ("repetition_penalty", 0, "repetition_penalty must be a number above 0 and at most 100, not 0"),
        ("frequency_penalty", 2.5, "frequency_penalty must be a number from -2 to 2, not 2.5"),
        ("presence_penalty", -3, "presence_penalty must be a number from -2 to 2, not -3"),
        ("min_tokens", -1, "min_tokens must be an integer of at least 0, not -1"),
        ("logit_bias", 5, "logit_bias must be an object of up to 1024 token ids with numbers from -100 to 100"),
        ("bad_words", "no", "bad_words must be an array of up to 512 strings or arrays of token ids"),
        ("max_token", 5, "max_token is no parameter (did you mean max_tokens?)"),
        ("max_token", None, "max_token is no parameter (did you mean max_tokens?)"),
        ("model", 5, "model must be the name of a model, not 5"),
        ("model", "", 'model must be the name of a model, not ""'),
        (
            "prompt",
            {"a": 1},
            "prompt must be a string, an array of strings, an array of token ids, or an array of such",
        ),
        (
            "prompt",
            ["a", [1]],
            "prompt must be a string, an array of strings, an array of token ids, or an array of such",
        ),
        ("prompt", ["a"] * 129, "prompt: 129 prompts are more than 128"),
        ("stream_options", {"include_usage": True}, "stream_options may only be given where stream is true"),
        ("stop", 5, "stop must be a string or an array of up to 16 strings, each of 1 to 1000 characters"),
        ("top_k", -2, "top_k must be an integer of at least 0 (0 keeps all), not -2"),
    ],
)
def test_a_bad_value_is_refused_by_name(parameter: str, value: Any, message: str) -> None:
    param, said = _refusal(read_completion, {"model": "m", "prompt": "p", parameter: value})
    assert param == parameter
    assert said.startswith(message)


@pytest.mark.parametrize(
    ("parameter", "value", "place"),
    [
        ("stop", ["a", ""], "stop[1]"),
        ("stop_token_ids", [1, -1], "stop_token_ids[1]"),
        ("prompt", [1, -1], "prompt[1]"),
        ("prompt", [[1], [2, 1.5]], "prompt[1][1]"),
        ("prompt", [["a"]], "prompt[0][0]"),
        ("logit_bias", {"a": 1}, "logit_bias.a"),
        ("logit_bias", {"1": 101}, "logit_bias.1"),
        ("bad_words", ["a", []], "bad_words[1]"),
        ("speculation", {"max_nodes": 64}, "speculation.max_nodes"),
        ("speculation", {"nodes": 4}, "speculation"),
    ],
)
def test_a_bad_value_inside_another_is_refused_by_its_place(parameter: str, value: Any, place: str) -> None:
    param, said = _refusal(read_completion, {"model": "m", "prompt": "p", parameter: value})
    assert param == place
    assert said.startswith(place)


@pytest.mark.parametrize(
    ("messages", "place"),
    [
        ([], "messages"),
        (["hello"], "messages[0]"),
        ([*HELLO, {"content": "hello"}], "messages[1].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
    ],
)
def test_a_bad_message_is_refused_by_its_place(messages: Any, place: str) -> None:
    assert _refusal(read_chat, {"model": "m", "messages": messages})[0] == place


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not valid JSON"),
        (b"", "the body is not valid JSON"),
        (b'{"model": "\xff"}', "the body is not valid JSON"),
        (b"[]", "the body must be a JSON object"),
        (b"{}", "prompt is required: a string, an array"),
        (b'{"model": "m"}', "prompt is required"),
    ],
)
def test_a_bad_body_is_refused(body: bytes, message: str) -> None:
    assert _refusal(read_completion, body)[1].startswith(message)


def test_two_different_lengths_are_refused() -> None:
    body = {"model": "m", "messages": HELLO, "max_tokens": 4, "max_completion_tokens": 5}
    assert _refusal(read_chat, body)[0] == "max_tokens"


def test_likeliest_tokens_need_log_probabilities() -> None:
    assert _refusal(read_chat, {"model": "m", "messages": HELLO, "top_logprobs": 2})[0] == "top_logprobs"
