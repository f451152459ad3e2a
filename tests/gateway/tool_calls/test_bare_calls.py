"""Calls that a model writes without the marks of its format, through all APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import openai
import pytest
from httpx_sse import EventSource
from outrider.engine.text import Tokenizer
from outrider.gateway.api.openai.bodies import read_chat
from outrider.gateway.api.responses.body import read_response
from outrider.v1 import inference_pb2 as pb
from outrider.v1.inference_pb2_grpc import InferenceStub
from outrider.v1.sampling_pb2 import SamplingParams, TokenSequence
from outrider.wire.ids import pack_ids

from tests.gateway.calls import BARE_HEAD, END, TOOLS, save_bare
from tests.gateway.stack import MODEL, Stack, events, stack
from tests.processes import ALWAYS

pytestmark = pytest.mark.timeout(300)

SAID: Any = [{"role": "user", "content": "paint the wall"}]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh whose model calls without marks if a bias makes it do so."""
    model = save_bare(tmp_path_factory.mktemp("models"))
    with stack(model, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, nats_door="false")
        made.add_model("tokenizer")
        made.add_model("verifier", drafters='["suffix", "ngram"]', program=ALWAYS)
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def head(bare: Stack) -> int:
    """The token that holds a bare call up to its arguments."""
    (token,) = Tokenizer.load(bare.directory).encode(BARE_HEAD)
    return token


@pytest.fixture(scope="module")
def again(bare: Stack, head: int) -> list[list[int]]:
    """Bad words that prevent a second call."""
    tokenizer = Tokenizer.load(bare.directory)
    closing = [token for token in range(tokenizer.vocabulary_size) if tokenizer.decode([token]).endswith("}")]
    return [[token, head] for token in closing]


def _asked(head: int, again: list[list[int]], **more: Any) -> dict[str, Any]:
    """A chat whose answer is one bare call and ends behind it."""
    biases = {str(head): 100, str(END): 80}
    said = {"model": MODEL, "messages": SAID, "tools": TOOLS, "seed": 3, "max_tokens": 200}
    return said | {"logit_bias": biases, "bad_words": again} | more


def _post(bare: Stack, path: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(f"{bare.url}{path}", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def _check(arguments: str) -> None:
    assert set(json.loads(arguments)) == {"colour", "coats"}


def test_a_bare_call_is_told_as_a_call(bare: Stack, head: int, again: list[list[int]]) -> None:
    told = _post(bare, "/v1/chat/completions", _asked(head, again, return_tokens=True))
    choice = told["choices"][0]
    assert told["outrider"]["tokens"][0] == head
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "paint"
    _check(call["function"]["arguments"])
    plain = _post(bare, "/v1/chat/completions", _asked(head, again, speculation="off"))["choices"][0]["message"]
    assert plain["tool_calls"][0]["function"] == call["function"]


def test_text_that_goes_on_behind_a_bare_call_is_text(bare: Stack, head: int, again: list[list[int]]) -> None:
    biases = {str(head): 100, str(END): -100}
    choice = _post(bare, "/v1/chat/completions", _asked(head, again, logit_bias=biases))["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"].startswith(BARE_HEAD)
    assert choice["message"].get("tool_calls") is None


async def test_a_stream_tells_the_call_before_its_end_and_goes_on_in_the_same_pieces(
    bare: Stack, head: int, again: list[list[int]]
) -> None:
    whole = _post(bare, "/v1/chat/completions", _asked(head, again))["choices"][0]["message"]["tool_calls"][0]
    for detailed in (False, True):
        body = _asked(head, again, stream=True, return_tokens=detailed)
        async with httpx.AsyncClient(base_url=bare.url, timeout=120) as http:
            async with http.stream("POST", "/v1/chat/completions", json=body) as response:
                request = response.headers["x-request-id"]
                sent = [event async for event in EventSource(response).aiter_sse()]
            told, ids = [event.json() for event in sent[:-1]], [event.id for event in sent]
            deltas = [chunk["choices"][0]["delta"] for chunk in told]
            assert not any(delta.get("content") for delta in deltas)
            assert [chunk["choices"][0]["finish_reason"] for chunk in told][-2:] == [None, "tool_calls"]
            assert deltas[-1] == {}
            ((call,),) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
            assert (call["function"], call["index"]) == (whole["function"], 0)
            for place in range(len(ids) - 1):
                headers = {"last-event-id": ids[place]}
                async with http.stream("GET", f"/v1/streams/{request}", headers=headers) as response:
                    assert [event async for event in events(response)] == told[place + 1 :]


async def test_the_openai_package_reads_it(bare: Stack, head: int, again: list[list[int]]) -> None:
    asked: Any = _asked(head, again)
    extra = {"bad_words": asked.pop("bad_words")}
    async with (
        openai.AsyncOpenAI(base_url=f"{bare.url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.stream(**asked, extra_body=extra) as stream,
    ):
        final: Any = (await stream.get_final_completion()).choices[0]
    assert (final.finish_reason, final.message.content or None) == ("tool_calls", None)
    _check(final.message.tool_calls[0].function.arguments)


def test_responses_and_grpc_tell_it_too(bare: Stack, head: int, again: list[list[int]]) -> None:
    asked = _asked(head, again)
    arguments = _post(bare, "/v1/chat/completions", asked)["choices"][0]["message"]["tool_calls"][0]["function"]
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    same = {name: asked[name] for name in ("model", "seed", "logit_bias", "bad_words")}
    response = _post(bare, "/v1/responses", same | {"input": SAID, "tools": tools, "max_output_tokens": 200})
    assert [(item["type"], item["arguments"]) for item in response["output"]] == [
        ("function_call", arguments["arguments"])
    ]
    stored = httpx.get(f"{bare.url}/v1/responses/{response['id']}", timeout=60).json()
    assert stored["output"] == response["output"]
    banned = [TokenSequence(ids=pack_ids(word)) for word in again]
    sampling = SamplingParams(seed=3, max_tokens=200, logit_bias={head: 100, END: 80}, bad_words=banned)
    request = pb.GenerateRequest(messages_json=json.dumps(SAID), tools_json=json.dumps(TOOLS), sampling=sampling)
    with grpc.insecure_channel(bare.grpc) as opened:
        stub: Any = InferenceStub(opened)
        told = list(stub.Generate(request))
    assert "".join(answer.text for answer in told) == ""
    assert told[-1].finish == "tool_calls"
    assert [call.arguments for call in told[-1].tool_calls] == [arguments["arguments"]]


@pytest.mark.parametrize(
    ("more", "bare"),
    [
        ({}, True),
        ({"tool_choice": "required"}, False),
        ({"tool_choice": "none"}, False),
        ({"response_format": {"type": "text"}}, True),
        ({"response_format": {"type": "json_object"}}, False),
    ],
)
def test_bare_calls_are_read_where_the_answer_may_be_any_text(more: dict[str, Any], bare: bool) -> None:
    body = {"messages": SAID, "tools": TOOLS} | more
    assert read_chat(json.dumps(body).encode()).shape(()).bare is bare
    named = {"response_format": "text"}
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    said = {named.get(key, key): {"format": value} if key in named else value for key, value in more.items()}
    assert read_response(json.dumps({"input": "hi", "tools": tools} | said).encode()).bare is bare
