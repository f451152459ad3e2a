"""Requests of open-webui 0.12.4, as it writes them to a backend of Ollama's and to one of OpenAI's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.gateway.calls import TOOLS
from tests.gateway.stack import MODEL, Stack

pytestmark = pytest.mark.timeout(300)
TEXTS = ["def f(x):\n    return x\n", "The river is wide."]
ASKED = {"role": "user", "content": "def f("}
TURNS: Any = [{"role": "system", "content": "Be brief."}, ASKED]
CALLED: Any = [
    *TURNS,
    {"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "3", "tool_call_id": "call_1"},
]
"""Messages of a chat with a call (utils/payload.py, convert_messages_openai_to_ollama); contents may be empty."""
ADVANCED: dict[str, Any] = {
    "temperature": 0.8,
    "top_p": 0.9,
    "seed": 7,
    "num_ctx": 2048,
    "num_batch": 512,
    "num_keep": 24,
    "num_predict": 20,
    "repeat_last_n": 64,
    "top_k": 40,
    "min_p": 0.05,
    "repeat_penalty": 1.1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "stop": ["\n\n\n"],
    "num_gpu": 0,
    "use_mmap": True,
    "use_mlock": False,
    "num_thread": 2,
}
"""Every parameter of its settings but Mirostat (utils/payload.py, apply_model_params_to_body_ollama)."""


@pytest.fixture
def http(shared: Stack) -> Iterator[httpx.Client]:
    """A client with the headers of routers/ollama.py and routers/openai.py that forward a user."""
    headers = {
        "Authorization": "Bearer none",
        "X-OpenWebUI-User-Name": "A%20B",
        "X-OpenWebUI-User-Id": "5b2c",
        "X-OpenWebUI-User-Email": "a@example.org",
        "X-OpenWebUI-User-Role": "user",
        "X-OpenWebUI-Chat-Id": "77",
    }
    with httpx.Client(base_url=shared.url, timeout=120, trust_env=False, headers=headers) as made:
        yield made


def posted(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_connection_of_ollama_s_is_verified_and_lists_models(http: httpx.Client) -> None:
    assert http.get("/api/version").json()["version"]
    (model,) = http.get("/api/tags").json()["models"]
    assert (model["model"], model["name"]) == (MODEL, MODEL)
    (loaded,) = http.get("/api/ps").json()["models"]
    datetime.fromisoformat(loaded["expires_at"])
    assert posted(http, "/api/show", {"model": MODEL})["details"]


@pytest.mark.parametrize("messages", [TURNS, CALLED], ids=["text", "call"])
def test_a_chat_of_ollama_s_streams_in_lines(http: httpx.Client, messages: Any) -> None:
    body = {"model": MODEL, "messages": messages, "stream": True, "options": ADVANCED, "keep_alive": "5m"}
    with http.stream("POST", "/api/chat", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        told = [json.loads(line) for line in answer.iter_lines()]
    assert "".join(line["message"]["content"] for line in told)
    last = told[-1]
    assert last["done"]
    counts = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count")
    assert all(isinstance(last[name], int) for name in (*counts, "eval_duration"))


def test_functions_a_schema_and_titles_reach_ollama_s_chat(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"title": {"enum": ["x"]}}, "required": ["title"]}
    title = {"model": MODEL, "messages": [ASKED], "stream": False, "format": schema, "options": {"num_predict": 1000}}
    assert "x" in posted(http, "/api/chat", title)["message"]["content"]
    offered = {"model": MODEL, "messages": TURNS, "stream": False, "options": {"num_predict": 8}, "tools": TOOLS}
    assert posted(http, "/api/chat", offered)["done"]


def test_unloading_asks_an_empty_prompt(http: httpx.Client) -> None:
    assert posted(http, "/api/generate", {"model": MODEL, "keep_alive": 0, "prompt": ""})["done"]


def test_texts_of_a_collection_are_embedded_alike_by_both(http: httpx.Client) -> None:
    ollama = posted(http, "/api/embed", {"input": TEXTS, "model": MODEL, "truncate": True})["embeddings"]
    openai = posted(http, "/v1/embeddings", {"input": TEXTS, "model": MODEL})["data"]
    assert [each["embedding"] for each in openai] == [pytest.approx(vector, abs=1e-6) for vector in ollama]
    ranking = {"model": MODEL, "query": TEXTS[0], "documents": TEXTS, "top_n": 2}
    results = sorted(posted(http, "/v1/rerank", ranking)["results"], key=lambda each: int(each["index"]))
    assert results[0]["relevance_score"] > results[1]["relevance_score"]


def test_a_connection_of_openai_s_lists_models_and_streams_chats(http: httpx.Client) -> None:
    assert [model["id"] for model in http.get("/v1/models").json()["data"]] == [MODEL]
    body: dict[str, Any] = {
        "stream": True,
        "model": MODEL,
        "messages": TURNS,
        "stream_options": {"include_usage": True},
        "temperature": 0.8,
        "top_p": 0.9,
        "min_p": 0.05,
        "top_k": 40,
        "max_tokens": 20,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repeat_penalty": 1.1,
        "seed": 7,
        "stop": ["\n\n\n"],
        "logit_bias": {"5": -100},
        "user": "5b2c",
    }
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        told = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in told if each["choices"])
    assert told[-1]["usage"]["completion_tokens"] == 20


def test_an_answer_that_was_stopped_goes_on(http: httpx.Client) -> None:
    """The button *Continue*, for a connection of the kind llama.cpp (routers/openai.py)."""
    turns = [*TURNS, {"role": "assistant", "content": "a, b):"}]
    body = {"model": MODEL, "messages": turns, "stream": False, "max_tokens": 8}
    goes_on = {"continue_final_message": True, "add_generation_prompt": False}
    assert posted(http, "/v1/chat/completions", body | goes_on)["choices"][0]["message"]["content"]


def test_a_wrong_model_is_an_error_that_it_shows(http: httpx.Client) -> None:
    answer = http.post("/api/chat", json={"model": "other", "messages": TURNS, "stream": True})
    assert (answer.status_code, "other" in answer.json()["error"]) == (404, True)
    answer = http.post("/v1/chat/completions", json={"model": "other", "messages": TURNS, "stream": True})
    assert (answer.status_code, "other" in answer.json()["error"]["message"]) == (404, True)
