"""Tokenizing texts and chats over HTTP, and detokenizing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engine.text.makers import CHATML, byte_level
from tests.gateway.stack import CONTEXT, MODEL, Stack

CHAT: Any = [{"role": "user", "content": "def f("}]
CALL: Any = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "[1]"}}]}


@pytest.fixture
def http(shared: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{shared.url}/v1", timeout=60) as made:
        yield made


def _post(http: httpx.Client, path: str, **body: Any) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_prompt_becomes_the_ids_that_a_completion_counts_and_comes_back(http: httpx.Client) -> None:
    text = "def f(x):  # ä€\n"
    told = _post(http, "/tokenize", model=MODEL, prompt=text)
    assert told["tokens"] == byte_level().encode(text).ids
    assert (told["count"], told["max_model_len"]) == (len(told["tokens"]), CONTEXT)
    made = _post(http, "/completions", prompt=told["tokens"], max_tokens=1)
    assert made["usage"]["prompt_tokens"] == told["count"]
    assert _post(http, "/detokenize", tokens=told["tokens"]) == {"prompt": text, "content": text}


def test_a_chat_becomes_the_ids_that_its_answer_counts(http: httpx.Client) -> None:
    told = _post(http, "/tokenize", messages=CHAT)
    made = _post(http, "/chat/completions", messages=CHAT, max_tokens=1)
    assert told["count"] == made["usage"]["prompt_tokens"]
    closed = _post(http, "/tokenize", messages=CHAT, add_generation_prompt=False)
    assert closed["tokens"] == told["tokens"][: closed["count"]]
    assert closed["count"] < told["count"]
    assert "<|im_start|>" in _post(http, "/detokenize", tokens=told["tokens"])["prompt"]


def test_a_chat_has_the_same_ids_however_a_client_writes_it(http: httpx.Client) -> None:
    def ids(**message: Any) -> Any:
        return _post(http, "/tokenize", messages=[{"role": "system", "content": "a"} | message, *CHAT])["tokens"]

    assert ids() == ids(role="developer") == ids(content=[{"type": "text", "text": "a"}])
    assert ids() == ids(tool_calls=None, refusal=None, audio=None) == ids(tool_calls=[])


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("tokenize", {}, 400, "prompt"),
        ("tokenize", {"prompt": 5}, 400, "prompt"),
        ("tokenize", {"prompt": "a", "messages": CHAT}, 400, "prompt"),
        ("tokenize", {"prompt": "a", "add_generation_prompt": True}, 400, "add_generation_prompt"),
        ("tokenize", {"messages": CHAT, "add_special_tokens": True}, 400, "add_special_tokens"),
        ("tokenize", {"prompt": "a", "return_token_strs": True}, 400, "return_token_strs"),
        ("tokenize", {"prompt": "a", "chat_template_kwargs": {}}, 400, "chat_template_kwargs"),
        ("tokenize", {"prompt": "a", "model": "none"}, 404, "model"),
        ("tokenize", {"prompt": "a" * (CONTEXT + 1)}, 400, "prompt"),
        ("tokenize", {"messages": [*CHAT, CALL]}, 400, "messages[1].tool_calls[0].function.arguments"),
        ("chat/completions", {"messages": [*CHAT, CALL]}, 400, "messages[1].tool_calls[0].function.arguments"),
        ("detokenize", {}, 400, "tokens"),
        ("detokenize", {"tokens": [1 << 30]}, 400, "tokens"),
        ("detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, path: str, body: dict[str, Any], status: int, param: str) -> None:
    refused = http.post(f"/{path}", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_special_tokens_and_the_template_are_told_as_vllm_does(shared: Stack, prefix: str) -> None:
    told = httpx.get(f"{shared.url}{prefix}/tokenizer_info", params={"model": MODEL}).json()
    files = json.loads((shared.directory / "tokenizer_config.json").read_text())
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    assert told == {"model": MODEL, "chat_template": CHATML} | {name: files.get(name) for name in names}


def test_a_tokenizer_that_is_not_there_is_refused(http: httpx.Client) -> None:
    answer = http.get("/tokenizer_info", params={"model": "none"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
