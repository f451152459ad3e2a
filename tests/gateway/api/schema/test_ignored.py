"""Parameters without effect are accepted and named; those that would change an answer are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from httpx_sse import EventSource
from outrider.gateway.api.openai.bodies import read_chat, read_completion
from outrider.gateway.api.responses.body import read_response
from outrider.gateway.api.schema import unsupported
from outrider.gateway.api.schema.ignored import shown_names
from outrider.gateway.request.biases import with_biases
from outrider.gateway.request.generation import Messages
from outrider.mesh.addresses import hold_port
from outrider.mesh.errors import InvalidRequest
from outrider.wire.sampling import SamplingParams

from tests.gateway.stack import MODEL, Stack
from tests.gateway.streaming import Gateway

HELLO = [{"role": "user", "content": "hello"}]
COMPLETION = {"model": MODEL, "prompt": "p", "max_tokens": 2}
CHAT = {"model": MODEL, "messages": HELLO, "max_tokens": 2}
RESPONSE = {"model": MODEL, "input": "p", "max_output_tokens": 2}
TABLES = {"completion": unsupported.COMPLETION, "chat": unsupported.CHAT, "response": unsupported.RESPONSE}
READERS = {
    "completion": (read_completion, COMPLETION),
    "chat": (read_chat, CHAT),
    "response": (read_response, RESPONSE),
}

GIVEN: dict[str, list[Any]] = {"completion": [], "chat": [], "response": [HELLO]}
"""What a body needs to become a generation."""


def _read(kind: str, **more: Any) -> tuple[Any, list[str]]:
    read, body = READERS[kind]
    ignored: list[str] = []
    return read(json.dumps(body | more).encode(), ignored), ignored


def _asked(kind: str, **more: Any) -> dict[str, Any]:
    """The parameters as the gateway read them."""
    read, ignored = _read(kind, **more)
    assert not ignored
    return msgspec.structs.asdict(read)


@pytest.mark.parametrize("kind", READERS)
def test_an_unknown_parameter_is_named_and_one_that_is_null_is_absent(kind: str) -> None:
    _, ignored = _read(kind, keep_alive="5m", n_threads=4, options=None, cache_prompt=False)
    assert ignored == ["keep_alive", "n_threads", "cache_prompt"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("chat", {"verbosity": "low"}),
        ("chat", {"prompt_cache_retention": "24h"}),
        ("chat", {"store": True}),
        ("chat", {"metadata": {"a": "b"}}),
        ("chat", {"service_tier": "flex"}),
        ("completion", {"safety_identifier": "x"}),
        ("response", {"max_tool_calls": 3}),
        ("response", {"context_management": [{"type": "compaction"}]}),
        ("response", {"client_metadata": {"a": "b"}}),
    ],
)
def test_a_parameter_without_effect_is_named(kind: str, more: dict[str, Any]) -> None:
    assert _read(kind, **more)[1] == [*more]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in TABLES for name in TABLES[kind].idle])
def test_every_known_parameter_without_effect_is_named(kind: str, name: str) -> None:
    assert _read(kind, **{name: "unusual"})[1] == [name]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in TABLES for name in TABLES[kind].altering])
def test_every_known_parameter_that_would_change_the_answer_is_refused(kind: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _read(kind, **{name: "unusual"})
    assert caught.value.param == name


def test_a_part_of_a_parameter_that_has_no_effect_is_named_by_its_place() -> None:
    described = {"name": "a", "schema": {}, "description": "b"}
    formatted = {"type": "json_schema", "json_schema": described}
    for kind in ("chat", "completion"):
        assert _read(kind, response_format=formatted)[1] == ["response_format.json_schema.description"]
    assert _read("response", text={"verbosity": "low"})[1] == ["text.verbosity"]
    assert _read("response", reasoning={"effort": "low", "summary": "auto"})[1] == ["reasoning.summary"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("chat", {"store": False, "service_tier": "auto", "reasoning_effort": "none", "verbosity": "medium"}),
        ("chat", {"chat_template_kwargs": None, "audio": None, "web_search_options": None, "modalities": ["text"]}),
        ("completion", {"best_of": 1, "suffix": "", "use_beam_search": False, "length_penalty": 1.0}),
        ("response", {"reasoning": {}, "truncation": "auto", "text": {"verbosity": "medium"}}),
        ("chat", {"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "xtc_probability": 0.0, "typical_p": 1.0}),
        (
            "completion",
            {"top_n_sigma": -1.0, "lora": [], "dry_multiplier": 0.0, "dry_base": 1.75, "cache_prompt": True},
        ),
    ],
)
def test_what_asks_for_nothing_is_not_named(kind: str, more: dict[str, Any]) -> None:
    assert _read(kind, **more)[1] == []


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("chat", "modalities", ["text", "audio"]),
        ("chat", "audio", {"voice": "alloy", "format": "wav"}),
        ("chat", "web_search_options", {"search_context_size": "low"}),
        ("chat", "web_search", True),
        ("chat", "images", ["aGk="]),
        ("chat", "functions", [{"name": "f"}]),
        ("chat", "echo", True),
        ("chat", "prompt", "p"),
        ("chat", "best_of", 2),
        ("chat", "suffix", "x"),
        ("response", "guided_json", {}),
        ("completion", "typical_p", 0.5),
        ("completion", "messages", HELLO),
        ("response", "prompt", {"id": "p"}),
        ("response", "max_tokens", 5),
        ("response", "conversation", "c"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(kind: str, name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"{name} is not supported") as refused:
        _read(kind, **{name: value})
    assert refused.value.param == name


def test_a_name_that_stands_for_a_required_parameter_is_refused_with_the_right_one() -> None:
    with pytest.raises(InvalidRequest, match="did you mean prompt"):
        read_completion(b'{"promt": "a"}', [])


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("completion", {"top_k": -1}),
        ("completion", {"max_tokens": -1}),
        ("completion", {"stop": ""}),
        ("completion", {"stop": []}),
        ("chat", {"max_tokens": -1}),
        ("chat", {"max_completion_tokens": -1}),
        ("response", {"max_output_tokens": -1}),
    ],
)
def test_values_that_mean_nothing_are_as_good_as_absent(kind: str, more: dict[str, Any]) -> None:
    assert _asked(kind, **more) == _asked(kind, **dict.fromkeys(more))


@pytest.mark.parametrize("kind", READERS)
def test_a_seed_of_minus_one_is_a_random_one(kind: str) -> None:
    """As in vLLM and llama-server."""
    drawn = {_read(kind, seed=-1)[0].generation(*GIVEN[kind]).sampling.seed for _ in range(3)}
    assert len(drawn) == 3
    assert -1 not in drawn
    assert not _read(kind, seed=-1, temperature=1)[0].generation(*GIVEN[kind]).coalesce
    assert _read(kind, seed=-2)[0].generation(*GIVEN[kind]).sampling.seed == -2


@pytest.mark.parametrize("name", ["n_predict", "num_predict"])
def test_the_length_has_other_servers_names_whose_minus_one_is_no_bound(name: str) -> None:
    for kind in ("completion", "chat"):
        assert _read(kind, max_tokens=None, **{name: 5})[0].generation().sampling.max_tokens == 5
        assert _read(kind, max_tokens=None, **{name: -1})[0].generation().sampling.max_tokens is None
        with pytest.raises(InvalidRequest, match=f"^max_tokens and {name} differ: give one of them$"):
            _read(kind, **{name: 3})
        with pytest.raises(InvalidRequest, match=name):
            _read(kind, **{name: -2})
    with pytest.raises(InvalidRequest, match=r"or give max_output_tokens$"):
        _read("response", **{name: 5})


@pytest.mark.parametrize("kind", READERS)
def test_biases_are_an_object_or_a_list(kind: str) -> None:
    assert _asked(kind, logit_bias=[])["logit_bias"] == ()
    listed = _asked(kind, logit_bias=[[5, 1.5], ["yes", -2], [5, False]])["logit_bias"]
    assert listed == ((5, 1.5), ("yes", -2), (5, False))
    for wrong in ([[5]], [[5, "a"]], [[-1, 1]], [5], [["", 1]], {"yes": 1}):
        with pytest.raises(InvalidRequest, match=r"logit_bias"):
            _read(kind, logit_bias=wrong)


@pytest.mark.parametrize("wrong", [True, 101, -101])
def test_a_listed_bias_is_a_number_or_false(wrong: object) -> None:
    with pytest.raises(InvalidRequest, match=r"^logit_bias must be an object .* or false$"):
        _read("completion", logit_bias=[[5, wrong]])[0].generation()


def test_listed_biases_add_up_and_false_bans() -> None:
    sampling = with_biases(SamplingParams(), [([5], 1.5), ([5, 6], -2.0), ([7], None), ([7, 8], None)])
    assert (sampling.logit_bias, sampling.bad_words) == ({5: -0.5, 6: -2.0}, ((7,), (8,)))
    with pytest.raises(InvalidRequest, match=r"^logit_bias adds up to"):
        with_biases(SamplingParams(), [([5], 60.0), ([5], 60.0)])


@pytest.mark.parametrize("kind", ["completion", "chat"])
def test_log_probabilities_of_a_prompt_are_not_streamed(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="prompt_logprobs may only be given where stream is false"):
        _read(kind, prompt_logprobs=0, stream=True)


@pytest.mark.parametrize("kind", READERS)
def test_the_repetition_penalty_has_another_servers_name(kind: str) -> None:
    assert _asked(kind, repeat_penalty=1.5) == _asked(kind, repetition_penalty=1.5, repeat_penalty=1.5)
    assert _asked(kind, repeat_penalty=1.5)["repetition_penalty"] == 1.5
    with pytest.raises(InvalidRequest, match=r"^repeat_penalty and repetition_penalty differ"):
        _read(kind, repeat_penalty=1.5, repetition_penalty=1.2)
    with pytest.raises(InvalidRequest, match=r"^repeat_penalty must be"):
        _read(kind, repeat_penalty=0)


def test_a_refusal_names_what_may_be_given_instead_if_the_api_has_it() -> None:
    with pytest.raises(InvalidRequest, match=r"^n_probs is not supported: .*, set it to 0, or give logprobs$"):
        _read("chat", n_probs=2)
    with pytest.raises(InvalidRequest, match=r"^n_probs is not supported: leave it out, or set it to 0$"):
        _read("response", n_probs=2)


def test_whole_numbers_with_a_point_are_integers() -> None:
    asked = _asked("completion", max_tokens=64.0, seed=1.0, n=1.0, stop_token_ids=[7.0], prompt=[5.0], top_k=-1.0)
    assert asked == _asked("completion", max_tokens=64, seed=1, n=1, stop_token_ids=[7], prompt=[5])
    assert [type(asked[name]) for name in ("max_tokens", "seed", "n")] == [int, int, int]
    for wrong in (1.5, 1e300):
        with pytest.raises(InvalidRequest, match="max_tokens"):
            _read("completion", max_tokens=wrong)


def test_a_deeply_nested_parameter_is_refused_by_its_name() -> None:
    nested = json.loads("[" * 600 + "]" * 600)
    with pytest.raises(InvalidRequest, match="stop"):
        _read("completion", stop={"a": nested}, keep_alive=nested)
    with pytest.raises(InvalidRequest) as refused:
        _read("completion", stop=nested)
    assert (refused.value.param or "").startswith("stop")


@pytest.mark.parametrize("name", ["a.b", "server/tool", "ns:tool"])
def test_a_tool_may_be_called_by_its_place_on_a_server(name: str) -> None:
    assert _read("chat", tools=[{"type": "function", "function": {"name": name}}])[0].call_rules.names == (name,)
    assert _read("response", tools=[{"type": "function", "name": name}])[0].call_rules.names == (name,)


def test_variables_of_the_template_are_passed_on_but_for_the_chat_itself() -> None:
    asked = _read("chat", chat_template_kwargs={"enable_thinking": False})[0].generation().prompt
    assert isinstance(asked, Messages)
    assert json.loads(asked.variables) == {"enable_thinking": False}
    with pytest.raises(InvalidRequest) as refused:
        _read("chat", chat_template_kwargs={"messages": []})
    assert (refused.value.param or "").startswith("chat_template_kwargs")


def test_names_are_told_in_few_safe_characters() -> None:
    assert shown_names(["a", "b\r\nx-evil: 1", "ä, b", "c" * 1000]) == ("a", "b??x-evil??1", "???b", "c" * 160)
    assert shown_names([str(place) for place in range(20)]) == (*map(str, range(16)), "+4")
    assert shown_names([]) == shown_names(None) == ()


@pytest.fixture
def http(shared: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared.url, timeout=60) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)],
)
def test_an_answer_names_what_had_no_effect(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    answer = http.post(path, json=body | {"keep_alive": 1, "num_ctx": 2})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-outrider-ignored"] == "keep_alive, num_ctx"
    assert answer.json()["outrider"]["ignored"] == ["keep_alive", "num_ctx"]
    plain = http.post(path, json=body)
    assert "x-outrider-ignored" not in plain.headers
    assert "ignored" not in plain.json()["outrider"]


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
def test_the_last_chunks_of_a_stream_and_of_its_resumption_name_it(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    asked = body | {"stream": True, "stream_options": {"include_usage": True}, "keep_alive": 1}
    streamed = http.post(path, json=asked)
    assert streamed.headers["x-outrider-ignored"] == "keep_alive"
    again = http.get(f"/v1/streams/{streamed.headers['x-request-id']}")
    for answer in (streamed, again):
        *chunks, _ = EventSource(answer).iter_sse()
        extras = [chunk.json().get("outrider", {}) for chunk in chunks]
        assert [extra.get("ignored") for extra in extras][-2:] == [["keep_alive"], ["keep_alive"]]


def test_a_stored_response_names_it_too(one: Gateway) -> None:
    with httpx.Client(base_url=one.url, timeout=60) as http:
        made = http.post("/v1/responses", json=RESPONSE | {"keep_alive": 1}).json()
        read = http.get(f"/v1/responses/{made['id']}").json()
    assert read["outrider"]["ignored"] == made["outrider"]["ignored"] == ["keep_alive"]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/tokenize", {"prompt": "a"}), ("/v1/detokenize", {"tokens": [5]}), ("/v1/responses/input_tokens", RESPONSE)],
)
def test_answers_without_a_place_for_it_name_it_in_the_header(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    answer = http.post(path, json=body | {"keep_alive": 1})
    assert (answer.status_code, answer.headers["x-outrider-ignored"]) == (200, "keep_alive")


def test_an_error_names_it_too(http: httpx.Client) -> None:
    refused = http.post("/v1/completions", json=COMPLETION | {"keep_alive": 1, "model": "none"})
    assert (refused.status_code, refused.headers["x-outrider-ignored"]) == (404, "keep_alive")


@pytest.fixture(scope="module")
def strict(shared: Stack) -> Iterator[str]:
    port = hold_port()
    gateway = shared.add("gateway", port=port, parameters="strict", nats_door="false")
    gateway.wait_ready()
    yield f"http://127.0.0.1:{port}"
    gateway.stop()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_token": 3}, "max_token is no parameter (did you mean max_tokens?)"),
        ({"n_threads": None}, "n_threads is no parameter"),
        ({"verbosity": "low"}, 'verbosity is not supported: leave it out, or set it to "medium"'),
        ({"audio": {"voice": "x"}}, "audio is not supported: leave it out, or set it to {}"),
    ],
)
def test_a_strict_gateway_refuses_both(strict: str, more: dict[str, Any], message: str) -> None:
    refused = httpx.post(f"{strict}/v1/chat/completions", json=CHAT | more, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, *more)
    assert error["message"] == message


def test_the_document_says_whether_a_gateway_is_strict(strict: str, http: httpx.Client) -> None:
    strictly = httpx.get(f"{strict}/openapi.json").json()["components"]["schemas"]["ChatBody"]
    leniently = http.get("/openapi.json").json()["components"]["schemas"]["ChatBody"]
    assert (strictly["additionalProperties"], leniently["additionalProperties"]) == (False, True)
    assert strictly["properties"]["verbosity"] == {"enum": ["medium", None]}
    assert leniently["properties"]["verbosity"] == {}
    assert leniently["properties"]["modalities"] == strictly["properties"]["modalities"] == {"enum": [["text"], None]}
    assert {"enum": [-1, None]} in leniently["properties"]["max_tokens"]["anyOf"]
