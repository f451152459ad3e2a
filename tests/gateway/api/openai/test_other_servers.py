"""Parameters that vLLM and llama-server have, in their forms, through a whole mesh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from outrider.gateway.api.openai.bodies import read_body_of_any_kind
from outrider.mesh.errors import InvalidRequest

from tests.gateway.stack import MODEL, Stack

PROMPT = "def parse_args("
MESSAGES = [{"role": "user", "content": PROMPT}]


@pytest.fixture
def http(shared: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared.url, timeout=60) as made:
        yield made


def ask(http: httpx.Client, path: str = "completions", **more: Any) -> Any:
    form = {"prompt": PROMPT} if path == "completions" else {"messages": MESSAGES}
    body = {"model": MODEL, "max_tokens": 16, "seed": 3, "ignore_eos": True} | form | more
    response = http.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def ids(http: httpx.Client, text: str) -> list[int]:
    body = {"model": MODEL, "prompt": text, "add_special_tokens": False, "parse_special_tokens": False}
    return list(http.post("/v1/tokenize", json=body).json()["tokens"])


def test_log_probabilities_of_a_prompt_are_those_of_its_echo(http: httpx.Client) -> None:
    plain, echoed = ask(http), ask(http, echo=True, logprobs=20)["choices"][0]["logprobs"]
    (choice,) = ask(http, prompt_logprobs=2)["choices"]
    assert (choice["text"], choice["logprobs"]) == (plain["choices"][0]["text"], None)
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert len(others) + 1 == plain["usage"]["prompt_tokens"] > 2
    for place, (entries, token) in enumerate(zip(others, ids(http, PROMPT)[1:], strict=True), 1):
        own, likeliest = entries[str(token)], sorted(echoed["top_logprobs"][place].values(), reverse=True)
        assert own["logprob"] == echoed["token_logprobs"][place]
        assert own["decoded_token"] == echoed["tokens"][place]
        assert own["rank"] == 1 + sum(other > own["logprob"] for other in likeliest) or own["rank"] > 20
        rest = sorted((entry["rank"], entry["logprob"]) for entry in entries.values() if entry["rank"] <= 2)
        assert [logprob for _, logprob in rest] == likeliest[:2]


def test_log_probabilities_of_prompt_and_answer_have_numbers_of_their_own(http: httpx.Client) -> None:
    alone = ask(http, logprobs=1)["choices"][0]["logprobs"]
    (both,) = ask(http, logprobs=1, prompt_logprobs=5)["choices"]
    assert both["logprobs"] == alone
    assert all(len(entries) in (5, 6) for entries in both["prompt_logprobs"][1:])
    echoed = ask(http, prompt_logprobs=0, echo=True)["choices"][0]
    assert echoed["text"].startswith(PROMPT)
    assert all(len(entries) == 1 for entries in echoed["prompt_logprobs"][1:])


def test_a_chat_tells_them_beside_its_choices(http: httpx.Client) -> None:
    plain, answer = (ask(http, "chat/completions", logprobs=True, n=2, **more) for more in ({}, {"prompt_logprobs": 1}))
    assert answer["choices"] == plain["choices"]
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert "prompt_logprobs" not in plain


def test_biases_may_be_a_list_of_tokens_and_texts(http: httpx.Client) -> None:
    def text(**more: Any) -> str:
        return str(ask(http, **more)["choices"][0]["text"])

    one, *_ = tokens = ids(http, " return")
    assert text(logit_bias=[[one, 2], [one, 3.5]]) == text(logit_bias={str(one): 5.5}) != text()
    assert text(logit_bias=[[" return", 6]]) == text(logit_bias=dict.fromkeys(map(str, tokens), 6)) != text()
    said = ask(http, return_tokens=True)["outrider"]["tokens"]
    banned = ask(http, return_tokens=True, logit_bias=[[token, False] for token in said])["outrider"]["tokens"]
    assert not {*said} & {*banned}


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_an_answer_tells_its_times_where_that_is_asked_for(http: httpx.Client, path: str) -> None:
    answer = ask(http, path, timings_per_token=True)
    times, usage = answer["timings"], answer["usage"]
    assert times["cache_n"] + times["prompt_n"] == usage["prompt_tokens"]
    assert times["predicted_n"] == usage["completion_tokens"] == 16
    assert min(times["prompt_ms"], times["predicted_ms"]) >= 0
    assert times["predicted_per_token_ms"] == pytest.approx(times["predicted_ms"] / 16)
    assert "timings" not in ask(http, path)


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_each_chunk_tells_the_times_so_far(http: httpx.Client, path: str) -> None:
    form = {"prompt": PROMPT} if path == "completions" else {"messages": MESSAGES}
    body = form | {"model": MODEL, "max_tokens": 16, "stream": True, "timings_per_token": True, "ignore_eos": True}
    lines = http.post(f"/v1/{path}", json=body).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    times = [chunk["timings"] for chunk in chunks if chunk["choices"][0].get("delta", {}).get("role") is None]
    assert all(one["predicted_n"] <= other["predicted_n"] for one, other in pairwise(times))
    assert all(one["predicted_ms"] <= other["predicted_ms"] for one, other in pairwise(times))
    assert times[-1]["predicted_n"] == 16


def test_a_stop_string_and_special_tokens_may_be_part_of_the_text(http: httpx.Client) -> None:
    whole = ask(http)["choices"][0]["text"]
    stop = whole[5:7]
    kept, cut = (
        ask(http, stop=stop, include_stop_str_in_output=keeps)["choices"][0]["text"] for keeps in (True, False)
    )
    assert kept == cut + stop
    assert whole.startswith(kept)
    biased = {"logit_bias": {"0": 100}, "max_tokens": 2}
    assert ask(http, **biased)["choices"][0]["text"] == ""
    assert ask(http, **biased, skip_special_tokens=False)["choices"][0]["text"] == "<|endoftext|>" * 2


@pytest.mark.parametrize("name", ["prompt_logprobs", "timings_per_token"])
def test_what_only_an_answer_over_http_can_hold_is_refused_elsewhere(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name} may only be given over HTTP$"):
        read_body_of_any_kind({"prompt": "p", name: 1 if name == "prompt_logprobs" else True})
