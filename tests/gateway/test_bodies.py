"""Reading requests: what is honoured, and refusals that name the parameter and what it may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from outrider.gateway.openai.bodies import read_chat, read_completion
from outrider.gateway.request import Messages, Speculation, Text, Tokens
from outrider.mesh.errors import InvalidRequest

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
        speculation={"drafters": ["ngram"], "max_nodes": 9},
    )
    assert asked.max_tokens == 7
    assert asked.speculation == Speculation(drafters=("ngram",), max_nodes=9)
    sampling = asked.sampling.to_proto(7)
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0, 3, 2**64 - 5)
    assert (round(sampling.top_p, 6), round(sampling.min_p, 6)) == (0.5, 0.1)
    assert (list(sampling.stop), list(sampling.stop_token_ids)) == (["a", "b"], [1, 2])
    assert sampling.ignore_eos


def test_defaults_are_those_of_openai() -> None:
    assert _completion().max_tokens == 16
    assert _chat().max_tokens is None
    sampling = _chat().sampling.to_proto(1)
    assert (sampling.temperature, sampling.top_k, sampling.min_p) == (1, 0, 0)
    assert not sampling.HasField("top_p")


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
    assert _completion(max_tokens=None, stop=None, seed=None, n=None, logprobs=None).max_tokens == 16


def test_known_parameters_are_taken_at_values_that_ask_for_nothing() -> None:
    _chat(n=1, tools=[], logprobs=False, response_format={"type": "text"}, user="u", metadata={"a": "b"}, store=False)
    _completion(best_of=1, echo=False, frequency_penalty=0, presence_penalty=0.0, logit_bias={})


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("max_tokens", -1, "max_tokens must be an integer of at least 1, not -1"),
        ("max_tokens", 0, "max_tokens must be an integer of at least 1, not 0"),
        ("max_tokens", "5", 'max_tokens must be an integer of at least 1, not "5"'),
        ("max_tokens", True, "max_tokens must be an integer of at least 1, not true"),
        ("max_tokens", 1.5, "max_tokens must be an integer of at least 1, not 1.5"),
        ("temperature", 101, "temperature must be a number from 0 to 100, not 101"),
        ("temperature", "hot", 'temperature must be a number from 0 to 100, not "hot"'),
        ("top_p", 0, "top_p must be a number above 0 and at most 1, not 0"),
        ("seed", 2**70, f"seed must be an integer of 64 bits, not {2**70}"),
        ("stream", "yes", 'stream must be true or false, not "yes"'),
        ("speculation", "on", 'speculation must be "off", or an object with "drafters" (names) and'),
        ("n", 2, "n is not supported: leave it out, or set it to 1"),
        ("n", True, "n is not supported: leave it out, or set it to 1"),
        ("logprobs", 5, "logprobs is not supported: leave it out, or set it to false"),
        ("max_token", 5, "max_token is no parameter (did you mean max_tokens?)"),
        ("model", 5, "model must be the name of a model, not 5"),
        ("model", "", 'model must be the name of a model, not ""'),
        ("prompt", {"a": 1}, "prompt must be a string, an array with one string, or an array of token ids"),
        ("prompt", ["a", "b"], "prompt holds several prompts: send one request for each"),
        ("stream_options", {"include_usage": True}, "stream_options may only be given where stream is true"),
        ("stop", "", "stop must be a string or an array of up to 16 strings, each of 1 to 1000 characters"),
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
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
    ],
)
def test_a_bad_message_is_refused_by_its_place(messages: Any, place: str) -> None:
    assert _refusal(read_chat, {"model": "m", "messages": messages})[0] == place


@pytest.mark.parametrize(
    ("tools", "accepted"), [([], True), ([{"type": "function", "function": {"name": "f"}}], False)]
)
def test_tools_are_refused_rather_than_ignored(tools: Any, accepted: bool) -> None:
    if accepted:
        _chat(tools=tools)
    else:
        assert _refusal(read_chat, {"model": "m", "messages": HELLO, "tools": tools})[0] == "tools"


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
