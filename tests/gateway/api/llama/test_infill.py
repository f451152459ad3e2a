"""Requests of editors that fill in: llama.vim's to llama-server, Continue's to llama-server and Ollama."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from outrider.engine.text import Tokenizer

from tests.gateway.filling import filling
from tests.gateway.stack import MODEL, Stack

pytestmark = pytest.mark.timeout(300)

TIMES = ["prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second"]
TIMES += ["predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"]
CHUNK = "import os\n\n\n"
CHUNKS = [{"text": CHUNK, "time": [1764374400, 523], "filename": "src/main.py"}]
WARMING: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": "",
    "input_suffix": "",
    "input_extra": CHUNKS,
    "prompt": "",
    "n_predict": 0,
    "temperature": 0.0,
    "samplers": [],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 1,
    "t_max_predict_ms": 1,
    "response_fields": [""],
}
"""What llama.vim sends ahead, s:ring_update of autoload/llama.vim at a1c8e6e4."""
FILLING: dict[str, Any] = {
    "id_slot": 0,
    "input_prefix": "def f(a, b):\n",
    "input_suffix": "\n    return c\n",
    "input_extra": CHUNKS,
    "prompt": "    c = ",
    "n_predict": 16,
    "stop": [],
    "n_indent": 4,
    "top_k": 40,
    "top_p": 0.90,
    "samplers": ["top_k", "top_p", "infill"],
    "stream": False,
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 1000,
    "response_fields": ["content", *(f"timings/{each}" for each in TIMES), "truncated", "tokens_cached"],
}
"""What it sends at the cursor, llama#fim."""
STOPS = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>"]
MARK = "<|im_end|>"
CONTINUE = {"temperature": 0.01, "num_predict": 16, "stop": STOPS, "num_ctx": 8192}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with filling(tmp_path_factory) as started:
        yield started


@pytest.fixture(scope="module")
def http(mesh: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=mesh.url, timeout=120, trust_env=False) as made:
        yield made


@pytest.fixture(scope="module")
def local(mesh: Stack) -> Tokenizer:
    return Tokenizer.load(mesh.directory)


def posted(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_llama_vim_fills_in_behind_what_it_sent_ahead(http: httpx.Client, local: Tokenizer) -> None:
    assert posted(http, "/infill", WARMING) == {}
    ahead = posted(http, "/infill", {**WARMING, "response_fields": []})
    assert (ahead["content"], ahead["tokens_predicted"], ahead["timings"]["predicted_n"]) == ("", 0, 0)
    told = posted(http, "/infill", FILLING)
    assert told.keys() == {*FILLING["response_fields"]}
    assert told["truncated"] is False
    sure: dict[str, Any] = {"temperature": 0, "response_fields": []}
    before, after = FILLING["input_prefix"] + FILLING["prompt"], FILLING["input_suffix"]
    filled = posted(http, "/infill", FILLING | sure | {"return_tokens": True})
    prompt = local.encode_infill(before, after, [("src/main.py", CHUNK)])
    asked = {"prompt": prompt, "max_tokens": 16, "temperature": 0, "top_k": 40, "top_p": 0.9, "return_token_ids": True}
    (choice,) = posted(http, "/v1/completions", asked)["choices"]
    assert filled["tokens"] == choice["token_ids"][: len(filled["tokens"])] != []
    assert filled["tokens_evaluated"] == len(prompt)
    alone = posted(http, "/infill", FILLING | sure | {"input_extra": []})
    assert alone["tokens_evaluated"] == len(local.encode_infill(before, after))


def test_names_of_marks_in_texts_are_text(http: httpx.Client, local: Tokenizer) -> None:
    told = posted(http, "/infill", {"input_prefix": MARK, "input_suffix": "", "n_predict": 1})
    assert told["tokens_evaluated"] == len(local.encode_infill(MARK, ""))
    assert told["tokens_evaluated"] > len(local.encode_infill(MARK, "", parse_special=True))


def test_continue_completes_by_llama_server_with_marks_of_its_own(http: httpx.Client, local: Tokenizer) -> None:
    prompt = "<|fim_prefix|>def f(<|fim_suffix|>):<|fim_middle|>"
    body = {"model": MODEL, "prompt": prompt, "stream": True, "n_predict": 16, "stop": STOPS, "temperature": 0.01}
    answer = http.post("/completion", json=body)
    told = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
    assert told[-1]["tokens_evaluated"] == len(local.encode_infill("def f(", "):"))
    assert "".join(each["content"] for each in told) != ""


def test_continue_finds_by_ollama_that_the_model_fills_in(http: httpx.Client) -> None:
    shown = posted(http, "/api/show", {"name": MODEL})
    assert ".Suffix" in shown["template"]
    assert "insert" in shown["capabilities"]
    body = {"model": MODEL, "prompt": "def f(", "suffix": "):", "options": CONTINUE, "keep_alive": 1800, "stream": True}
    answer = http.post("/api/generate", json=body)
    assert answer.status_code == 200, answer.text
    told = [json.loads(line) for line in answer.text.splitlines()]
    asked = {"prompt": "def f(", "suffix": "):", "temperature": 0.01, "max_tokens": 16, "stop": STOPS}
    assert told[-1]["prompt_eval_count"] == posted(http, "/v1/completions", asked)["usage"]["prompt_tokens"]
    assert told[-1]["done"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("/api/generate", {"model": MODEL, "prompt": "a", "suffix": "b"}),
    ],
)
def test_a_model_without_such_tokens_refuses_as_completions_do(shared: Stack, path: str, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{shared.url}{path}", json=body, timeout=60)
    assert answer.status_code == 400
    assert "suffix may not be given: this model has no tokens for a prompt with a suffix" in answer.text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input_prefix": "a"}, "input_suffix is required"),
        (
            {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "c"}]},
            "input_extra must be an array",
        ),
        ({"input_prefix": "a", "input_suffix": "b", "prompt": ["c"]}, "prompt must be a string"),
    ],
)
def test_a_wrong_body_is_refused(http: httpx.Client, body: dict[str, Any], message: str) -> None:
    answer = http.post("/infill", json=body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]
