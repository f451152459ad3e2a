"""Thoughts through a whole mesh: beside the answer, the same streamed and not, with guesses and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import grpc
import httpx
import pytest
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import SamplingParams

from tests.gateway.stack import MODEL, Stack, stack
from tests.processes import ALWAYS
from tests.thinking import save_thinking

pytestmark = pytest.mark.timeout(300)

ASKED = [{"role": "user", "content": "def f("}]
SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "boolean"}},
    "required": ["b"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
THINKS: dict[str, Any] = {"enable_thinking": True, "thinking_token_budget": 9, "temperature": 1, "top_p": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "text": {},
    "schema": {"response_format": FORMAT},
    "calls": {"tools": TOOLS, "tool_choice": "required"},
    "stops": {"stop": ["e", "\n"]},
}
OWN_SAMPLING = {"temperature": 0.1, "top_p": 0.8, "repetition_penalty": 1.1}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh whose model thinks, and names the sampling that it is to be used with."""
    directory = save_thinking(tmp_path_factory.mktemp("models") / "toy")
    (directory / "generation_config.json").write_text(json.dumps(OWN_SAMPLING | {"do_sample": True}))
    options = json.dumps({"model": {"model": str(directory)}})
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, nats_door="false")
        made.add_model("tokenizer")
        made.add_model("verifier", drafters='["model", "suffix"]', options=options, latch=None, program=ALWAYS)
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def http(mesh: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mesh.url, timeout=120, trust_env=False) as made:
        yield made


def whole(http: httpx.Client, **body: Any) -> dict[str, Any]:
    asked = {"model": MODEL, "messages": ASKED, "max_tokens": 80, "seed": 3, "coalesce": False, **body}
    answer = http.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def chunks(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The ids and the data of a stream's events."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if fields.get("data", "").startswith("{"):
            found.append((fields["id"], json.loads(fields["data"])))
    return found


def streamed(http: httpx.Client, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    asked = {"model": MODEL, "messages": ASKED, "max_tokens": 80, "seed": 3, "coalesce": False, "stream": True, **body}
    answer = http.post("/v1/chat/completions", json=asked | {"stream_options": {"include_usage": True}})
    assert answer.status_code == 200, answer.text
    return chunks(answer.text)


def told(events: list[tuple[str, dict[str, Any]]], choice: int) -> tuple[str, str, str, str, list[Any]]:
    """Thought, text, arguments of calls, finish reason and log-probabilities of a choice of a stream."""
    mine = [each for _, chunk in events for each in chunk["choices"] if each["index"] == choice]
    deltas = [each["delta"] for each in mine]
    for delta in deltas:
        assert delta.get("reasoning") == delta.get("reasoning_content")
    calls = [call["function"].get("arguments", "") for delta in deltas for call in delta.get("tool_calls", [])]
    logprobs = [entry for each in mine for entry in (each["logprobs"] or {}).get("content", [])]
    (finish,) = (each["finish_reason"] for each in mine if each["finish_reason"])
    join = "".join
    thought, text = (join(delta.get(name) or "" for delta in deltas) for name in ("reasoning_content", "content"))
    return thought, text, join(calls), finish, logprobs


def told_whole(choice: dict[str, Any]) -> tuple[str, str, str, str, list[Any]]:
    message = choice["message"]
    calls = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    logprobs = (choice["logprobs"] or {}).get("content", [])
    thought, text = message.get("reasoning_content") or "", message["content"] or ""
    return thought, text, "".join(calls), choice["finish_reason"], logprobs


@pytest.mark.parametrize(("shape", "n", "logprobs"), [*product(SHAPES, [1, 2], [False, True])])
def test_streams_answers_and_plain_decoding_agree(http: httpx.Client, shape: str, n: int, logprobs: bool) -> None:
    body = THINKS | SHAPES[shape] | {"n": n, "logprobs": logprobs}
    answer, plain, events = whole(http, **body), whole(http, **body, speculation="off"), streamed(http, **body)
    for choice, other in zip(answer["choices"], plain["choices"], strict=True):
        thought, text, calls, finish, entries = told_whole(choice)
        assert (thought, text, calls, finish, entries) == told_whole(other) == told(events, choice["index"])
        assert thought
        assert bool(entries) is logprobs
        if shape == "schema" and finish == "stop":
            assert json.loads(text).keys() == {"b"}
        if shape == "calls" and finish == "tool_calls":
            assert not text
            assert json.loads(calls).keys() == {"b"}
    details = answer["usage"]["completion_tokens_details"]
    assert details["reasoning_tokens"] == events[-1][1]["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert details["reasoning_tokens"] >= n


def test_a_thought_cut_by_the_limit_leaves_no_content(http: httpx.Client) -> None:
    body = {"enable_thinking": True, "max_tokens": 6, "ignore_eos": True, "temperature": 1}
    message, events = whole(http, **body)["choices"][0], streamed(http, **body)
    assert (message["message"]["content"], message["finish_reason"]) == (None, "length")
    assert told(events, 0) == told_whole(message)
    assert not [chunk for _, chunk in events[1:] for each in chunk["choices"] if "content" in each["delta"]]


def test_a_thought_is_told_unless_the_client_wants_none(http: httpx.Client) -> None:
    shown, hidden = whole(http, **THINKS), whole(http, **THINKS, include_reasoning=False)
    message = hidden["choices"][0]["message"]
    assert "reasoning_content" not in message
    assert "reasoning" not in message
    assert message["content"] == shown["choices"][0]["message"]["content"]
    assert hidden["usage"]["completion_tokens"] == shown["usage"]["completion_tokens"]
    assert told(streamed(http, **THINKS, include_reasoning=False), 0)[:2] == ("", message["content"])


@pytest.mark.parametrize(
    ("parameters", "variables"),
    [
        ({"enable_thinking": True}, {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high", "enable_thinking": True}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        ({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}),
    ],
)
def test_switches_are_variables_of_the_template(
    http: httpx.Client, parameters: dict[str, Any], variables: dict[str, Any]
) -> None:
    answer = whole(http, **parameters, max_tokens=12)
    asked = {"model": MODEL, "messages": ASKED, "chat_template_kwargs": variables}
    assert answer["usage"]["prompt_tokens"] == http.post("/v1/tokenize", json=asked).json()["count"]
    assert ("reasoning_content" in answer["choices"][0]["message"]) is variables["enable_thinking"]


def test_earlier_thoughts_go_to_the_template(http: httpx.Client) -> None:
    said = {"role": "assistant", "content": "return"}
    counts = [
        whole(http, messages=[*ASKED, said | thought, *ASKED], max_tokens=1)["usage"]["prompt_tokens"]
        for thought in ({}, {"reasoning_content": "for naïve"}, {"reasoning": "for naïve"})
    ]
    assert counts[0] < counts[1] == counts[2]


def test_a_stream_is_resumed_inside_and_behind_its_thought(http: httpx.Client) -> None:
    events = streamed(http, **THINKS, max_tokens=30, ignore_eos=True)
    stream = events[0][0].partition(":")[0]
    for place in range(0, len(events), 5):
        rest = http.get(f"/v1/streams/{stream}", headers={"last-event-id": events[place][0]})
        assert rest.status_code == 200, rest.text
        assert chunks(rest.text) == events[place + 1 :]


def test_what_the_client_does_not_name_is_sampled_as_the_model_says(http: httpx.Client) -> None:
    def says(**body: Any) -> str:
        message = whole(http, **body, enable_thinking=False, max_tokens=24, ignore_eos=True)["choices"][0]["message"]
        return str(message["content"])

    neutral = {"temperature": 1, "top_p": 1, "repetition_penalty": 1}
    assert says() == says(**OWN_SAMPLING) != says(**neutral)
    for name in OWN_SAMPLING:
        assert says(**{name: neutral[name]}) == says(**OWN_SAMPLING | {name: neutral[name]})


def test_grpc_tells_thoughts_too(mesh: Stack, http: httpx.Client) -> None:
    sampling = SamplingParams(temperature=1, top_p=1, seed=3, max_tokens=80)
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages_json": json.dumps(ASKED),
        "sampling": sampling,
        "coalesce": False,
    }
    request = pb.GenerateRequest(**asked, enable_thinking=True, thinking_token_budget=9)
    with grpc.insecure_channel(mesh.grpc) as channel:
        stub = InferenceStub(channel)
        complete, parts = stub.Complete(pb.CompleteRequest(request=request)), list(stub.Generate(request))
    answer = whole(http, **THINKS)
    message = answer["choices"][0]["message"]
    (choice,) = complete.choices
    assert (choice.reasoning, choice.text) == (message["reasoning_content"], message["content"])
    assert "".join(part.reasoning for part in parts) == choice.reasoning
    assert "".join(part.text for part in parts) == choice.text
    tokens = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert complete.usage.reasoning_tokens == parts[-1].usage.reasoning_tokens == tokens


def test_a_model_without_marks_keeps_every_budget(shared: Stack) -> None:
    body = {"model": MODEL, "messages": ASKED, "max_tokens": 4, "thinking_token_budget": 3}
    answer = httpx.post(f"{shared.url}/v1/chat/completions", json=body, timeout=60, trust_env=False)
    assert answer.status_code == 200
    assert "reasoning_content" not in answer.json()["choices"][0]["message"]


def data(text: str) -> list[dict[str, Any]]:
    """The data of a stream's events."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_messages_and_responses_tell_the_thoughts_of_chats(http: httpx.Client) -> None:
    drawn = {"model": MODEL, "seed": 3, "temperature": 1, "top_p": 1}
    message = whole(http, **THINKS)["choices"][0]["message"]
    asked = drawn | {"messages": ASKED, "max_tokens": 80, "thinking": {"type": "enabled", "budget_tokens": 9}}
    thought, *rest = http.post("/v1/messages", json=asked).json()["content"]
    assert (thought["type"], thought["thinking"]) == ("thinking", message["reasoning_content"])
    assert thought["signature"]
    assert "".join(block["text"] for block in rest) == (message["content"] or "")
    deltas = [
        event["delta"]
        for event in data(http.post("/v1/messages", json=asked | {"stream": True}).text)
        if event["type"] == "content_block_delta"
    ]
    assert "".join(delta.get("thinking", "") for delta in deltas) == thought["thinking"]
    assert [delta["signature"] for delta in deltas if "signature" in delta] == [thought["signature"]]

    chat = whole(http, reasoning_effort="low", temperature=1, top_p=1)
    message, used = chat["choices"][0]["message"], chat["usage"]["completion_tokens_details"]["reasoning_tokens"]
    asked = drawn | {"input": ASKED, "max_output_tokens": 80, "reasoning": {"effort": "low"}}
    asked["include"] = ["reasoning.encrypted_content"]
    response = http.post("/v1/responses", json=asked).json()
    item = response["output"][0]
    assert (item["type"], item["content"][0]["text"]) == ("reasoning", message["reasoning_content"])
    assert item["encrypted_content"]
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == used > 0
    events = data(http.post("/v1/responses", json=asked | {"stream": True}).text)
    told = [event["delta"] for event in events if event["type"] == "response.reasoning_text.delta"]
    assert "".join(told) == message["reasoning_content"]
    assert events[-1]["response"]["output"][0]["content"] == item["content"]
