"""Predicted outputs through a whole mesh: the same answers in fewer steps, over every API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import outrider_client as http
import pytest
from outrider_client import grpc, nats

from tests.gateway.stack import MODEL, Stack, stack
from tests.processes import ALWAYS

MESSAGES: Any = [{"role": "user", "content": "def parse("}]
LENGTH = 48
BODY: Any = {"model": MODEL, "messages": MESSAGES, "max_tokens": LENGTH, "seed": 5}
LETTERS: Any = {"structured_outputs": {"regex": "[QXZ~]{60}"}}
"""Answers whose texts become the same tokens again, one for each letter."""
GREEDY: Any = {"temperature": 0}
SAMPLED: Any = {"temperature": 0.8, "top_p": 0.9}
SHAPED: Any = {"temperature": 0.8, "response_format": {"type": "json_object"}}


@pytest.fixture(scope="module")
def mesh(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A mesh with the default drafters, which are asked at every step."""
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as made:
        made.add("gateway", port=made.port, grpc_port=made.grpc_port, cache_bytes=1 << 20)
        made.add_model("tokenizer")
        made.add_model("verifier", drafters='["auto"]', latch=None, program=ALWAYS)
        made.wait_ready()
        yield made


@pytest.fixture
async def client(mesh: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def content(text: Any) -> Any:
    return {"type": "content", "content": text}


async def answer(client: openai.AsyncOpenAI, **more: Any) -> Any:
    """An answer of its own, with its tokens."""
    form = {} if {"response_format", "tools"} & more.keys() else LETTERS
    extra = {"return_tokens": True, "coalesce": False} | form | more.pop("extra_body", {})
    return await client.chat.completions.create(**BODY | more, extra_body=extra)


def tokens(told: Any) -> list[int]:
    return list(told.outrider["tokens"])


@pytest.mark.parametrize("draws", [GREEDY, SAMPLED, SHAPED])
async def test_no_prediction_changes_an_answer(client: openai.AsyncOpenAI, draws: Any) -> None:
    plain = await answer(client, **draws, extra_body={"speculation": "off"})
    said = str(plain.choices[0].message.content)
    half = said[: len(said) // 2] + " something else " + said[len(said) // 2 :]
    for text in (said, half, "class Another:\n    pass\n" * 40, "\0<|im_end|>\ufffd", ""):
        guessed = await answer(client, **draws, prediction=content(text))
        assert tokens(guessed) == tokens(plain)
        assert guessed.choices[0].message == plain.choices[0].message


async def test_a_right_prediction_saves_steps_and_is_counted_as_openai_s_clients_read_it(
    client: openai.AsyncOpenAI,
) -> None:
    plain = await answer(client, **GREEDY, extra_body={"speculation": "off"})
    said = str(plain.choices[0].message.content)
    parts = [{"type": "text", "text": said[:9]}, {"type": "text", "text": said[9:]}]
    for text in (said, parts):
        told = await answer(client, **GREEDY, prediction=content(text), extra_body={"return_drafts": True})
        details = told.usage.completion_tokens_details
        guesses = [name for tree in told.outrider["drafts"] for name in tree["guessed_by"]]
        assert told.outrider["guessed_by"].count("prediction") == details.accepted_prediction_tokens > 0
        wrong = guesses.count("prediction") - details.accepted_prediction_tokens
        assert wrong == details.rejected_prediction_tokens
        assert told.outrider["steps"] < plain.outrider["steps"]
    wrong_text = await answer(client, **GREEDY, prediction=content("\x01\x02\x03"))
    details = wrong_text.usage.completion_tokens_details
    assert details.accepted_prediction_tokens == 0
    assert "prediction" not in wrong_text.outrider["guessed_by"]


async def test_several_choices_share_a_prediction_and_count_together(client: openai.AsyncOpenAI) -> None:
    plain = await answer(client, **SAMPLED, n=3)
    said = str(plain.choices[1].message.content)
    told = await answer(client, **SAMPLED, n=3, prediction=content(said))
    assert told.choices == plain.choices
    named = [name for each in told.outrider["choices"] for name in each["guessed_by"]]
    assert told.usage.completion_tokens_details.accepted_prediction_tokens == named.count("prediction") > 0


async def test_a_prediction_beside_tools_and_in_a_stream_is_taken(client: openai.AsyncOpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    plain = await answer(client, **GREEDY, tools=tools)
    assert (await answer(client, **GREEDY, tools=tools, prediction=content("def f("))).choices == plain.choices
    options: Any = {"include_usage": True}
    stream = await client.chat.completions.create(
        **BODY | GREEDY, stream=True, stream_options=options, prediction=content("ZZ"), extra_body=LETTERS
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == LENGTH


async def test_every_api_takes_predictions(mesh: Stack, client: openai.AsyncOpenAI) -> None:
    plain = await answer(client, **GREEDY)
    said = plain.choices[0].message.content
    asked = {**GREEDY, **LETTERS, "max_tokens": LENGTH, "seed": 5, "coalesce": False, "prediction": content(said)}
    clients: list[Any] = [http.AsyncClient(mesh.url), grpc.AsyncClient(mesh.grpc), nats.AsyncClient(mesh.broker.url)]
    for made in clients:
        async with made as each:
            told = await each.chat(MESSAGES, model=MODEL, **asked)
        assert told.choices[0].message.content == said
        assert told.usage is not None
        assert told.usage.completion_tokens_details.accepted_prediction_tokens > 0


async def test_completions_and_responses_take_predictions_too(mesh: Stack) -> None:
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:

        async def ask(**body: Any) -> Any:
            path = body.pop("path")
            asked = {"model": MODEL, "temperature": 0, "coalesce": False, "return_tokens": True, **LETTERS, **body}
            response = await client.post(f"/v1/{path}", json=asked)
            assert response.status_code == 200, response.text
            return response.json()

        completion: Any = {"path": "completions", "prompt": ["def f(", "class A"], "max_tokens": LENGTH}
        plain = await ask(**completion)
        told = await ask(**completion, prediction=content(plain["choices"][0]["text"]))
        assert told["choices"] == plain["choices"]
        assert told["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0
        ids = {"path": "completions", "prompt": [5, 6, 7], "max_tokens": LENGTH}
        plain = await ask(**ids)
        told = await ask(**ids, prediction=content(plain["choices"][0]["text"]))
        assert told["choices"] == plain["choices"]
        assert told["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0
        response: Any = {"path": "responses", "input": "def f(", "max_output_tokens": LENGTH}
        plain = await ask(**response)
        text = plain["output"][0]["content"][0]["text"]
        told = await ask(**response, prediction=content(text))
        assert told["output"][0]["content"] == plain["output"][0]["content"]
        assert told["usage"]["output_tokens_details"]["accepted_prediction_tokens"] > 0


async def test_requests_that_differ_in_their_prediction_alone_share_an_answer(client: openai.AsyncOpenAI) -> None:
    kept = {"coalesce": True}
    body: Any = {"messages": [{"role": "user", "content": "what is kept?"}], **GREEDY, "extra_body": kept}
    first = await answer(client, **body)
    again = await answer(client, **body, prediction=content("something"))
    assert again.choices == first.choices
    assert (first.outrider["steps"] > 0, again.outrider["steps"]) == (True, 0)
    assert again.usage.completion_tokens_details.rejected_prediction_tokens == 0


@pytest.mark.parametrize(
    ("prediction", "param", "message"),
    [
        ("text", "prediction", 'prediction must be an object like {"type": "content", "content": "..."}'),
        ({"type": "other", "content": "a"}, "prediction.type", "prediction.type"),
        ({"type": "content", "content": 7}, "prediction.content", "prediction.content"),
        ({"type": "content", "content": [{"type": "image", "text": "a"}]}, "prediction.content[0].type", "prediction"),
        (content("word " * 5000), "prediction", "prediction: 25000 tokens are too many; this model's maximum"),
    ],
)
async def test_a_prediction_that_cannot_be_one_is_refused_by_name(
    client: openai.AsyncOpenAI, prediction: Any, param: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await answer(client, prediction=prediction)
    assert refused.value.param == param
    assert refused.value.body["message"].startswith(message)  # type: ignore[index]
