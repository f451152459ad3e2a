"""The library gives the tokens of a mesh with the same model, parameters and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from outrider.engine import LLM, Result, SamplingParams

from tests.gateway.stack import MODEL
from tests.gateway.streaming import Gateway

SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"enum": ["x", "y"]}},
    "required": ["b", "a"],
    "additionalProperties": False,
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "min_p": 0.01, "seed": 41},
    "defaults": {"seed": -3},
    "edited": {"seed": 5, "repetition_penalty": 1.2, "presence_penalty": 1, "logit_bias": {"17": 3}, "min_tokens": 9},
    "windowed": {"seed": 7, "repetition_penalty": 1.4, "repeat_last_n": 6, "allowed_token_ids": [*range(5, 90)]},
    "shown": {"seed": 8, "logit_bias": {"0": 5}, "ignore_eos": True, "skip_special_tokens": False},
    "kept": {"seed": 6, "stop": ["e", "s"], "include_stop_str_in_output": True},
    "words": {"seed": 6, "bad_words": ["def", [17]], "stop": ["e", "s"], "stop_token_ids": [30, 31]},
}
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is <think>?"}]


def library(asked: dict[str, Any]) -> SamplingParams:
    biases = {int(token): bias for token, bias in asked.get("logit_bias", {}).items()}
    return SamplingParams(max_tokens=40, **asked | {"logit_bias": biases})


def ask(gateway: Gateway, path: str, **body: Any) -> dict[str, Any]:
    asked = {"model": MODEL, "max_tokens": 40, "return_tokens": True, **body}
    answer = httpx.post(f"{gateway.url}/v1/{path}", json=asked, timeout=240, trust_env=False)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["choices"][0] | {"tokens": body["outrider"]["tokens"]}


def require_same(result: Result, choice: dict[str, Any]) -> None:
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    assert result.token_ids == choice["tokens"]
    assert (result.text, result.finish_reason) == (text, choice["finish_reason"])


@pytest.mark.parametrize("name", PARAMETERS)
def test_texts_get_the_same_answers(llm: LLM, other: Gateway, name: str) -> None:
    prompt, asked = "def parse_args(<|im_start|>", PARAMETERS[name]
    require_same(llm.generate(prompt, library(asked))[0], ask(other, "completions", prompt=prompt, **asked))


def test_token_ids_get_the_same_log_probabilities(llm: LLM, other: Gateway) -> None:
    asked = {"seed": 9, "logprobs": 3}
    (result,) = llm.generate([9, 40, 300], library(asked))
    choice = ask(other, "completions", prompt=[9, 40, 300], **asked)
    require_same(result, choice)
    assert [each.logprob for each in result.logprobs or []] == choice["logprobs"]["token_logprobs"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_chats_get_the_same_answers(llm: LLM, other: Gateway, name: str) -> None:
    asked = PARAMETERS[name]
    require_same(llm.chat(MESSAGES, library(asked))[0], ask(other, "chat/completions", messages=MESSAGES, **asked))


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_gives_the_same_answers(llm: LLM, other: Gateway, seed: int) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    params = SamplingParams(max_tokens=40, seed=seed, json_schema=SCHEMA)
    choice = ask(other, "chat/completions", messages=MESSAGES, seed=seed, response_format=wanted)
    require_same(llm.chat(MESSAGES, params)[0], choice)
    choice = ask(other, "completions", prompt="def", seed=seed, structured_outputs={"json": SCHEMA})
    require_same(llm.generate("def", params)[0], choice)


def test_the_library_reads_the_mesh_s_model(llm: LLM, directory: Path) -> None:
    assert llm.context_length == 4096
    assert llm.tokenizer.decode(llm.tokenizer.encode("def f(")) == "def f("
