"""Parameters of vLLM and llama-server that change the prompt, and OpenAI's suffix and best_of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from outrider.engine.text import Tokenizer

from tests.gateway.filling import CONTEXT, SEPARATOR, filling
from tests.gateway.stack import MODEL, Stack

pytestmark = pytest.mark.timeout(300)

PROMPT = "def parse_args(argv):\n    return argv[1:]\n"
LONG = PROMPT * 60
CHAT = [{"role": "user", "content": "def f("}, {"role": "assistant", "content": "class "}]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with filling(tmp_path_factory) as started:
        yield started


@pytest.fixture(scope="module")
def local(mesh: Stack) -> Tokenizer:
    return Tokenizer.load(mesh.directory)


class Api:
    """Asks a gateway; every answer tells the ids of its prompt and of its tokens."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def refusal(self, path: str, **body: Any) -> tuple[str, str]:
        answer = self._http.post(path, json={"max_tokens": 8, "seed": 3} | body)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        return error["param"], error["message"]

    def complete(self, prompt: Any = PROMPT, **body: Any) -> Any:
        return self._post("/v1/completions", {"prompt": prompt} | body)

    def chat(self, messages: Any = CHAT, **body: Any) -> Any:
        return self._post("/v1/chat/completions", {"messages": messages} | body)

    def events(self, path: str, **body: Any) -> list[Any]:
        shared = {"max_tokens": 8, "seed": 3, "return_token_ids": True, "stream": True}
        lines = self._http.post(path, json=shared | body).text.splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(path, json={"max_tokens": 8, "seed": 3, "return_token_ids": True} | body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def api(mesh: Stack) -> Iterator[Api]:
    with httpx.Client(base_url=mesh.url, timeout=120) as http:
        yield Api(http)


def _ids(answer: Any) -> tuple[list[int], list[int]]:
    choice = answer["choices"][0]
    return answer.get("prompt_token_ids") or choice["prompt_token_ids"], choice["token_ids"]


def test_a_suffix_is_put_behind_the_prompt_by_the_models_tokens(api: Api, local: Tokenizer) -> None:
    for body in ({}, {"speculation": "off"}):
        prompt, told = _ids(api.complete("def f(", suffix="\n    return a\n", temperature=0, **body))
        assert prompt == local.encode_infill("def f(", "\n    return a\n")
        assert told == _ids(api.complete(prompt, temperature=0))[1]
    several = api.complete(["a", "b"], suffix="c")["choices"]
    assert [each["prompt_token_ids"] for each in several] == [local.encode_infill(each, "c") for each in "ab"]


def test_separators_of_files_end_what_is_filled_in(api: Api, local: Tokenizer) -> None:
    token = local.added_token(SEPARATOR)
    biased = {"logit_bias": {str(token): 100}, "temperature": 0}
    filled = api.complete("def f(", suffix="b", **biased)
    assert filled["choices"][0]["finish_reason"] == "stop"
    assert _ids(filled)[1] == [token]
    assert len(_ids(api.complete("def f(", **biased))[1]) == 8


@pytest.mark.parametrize("more", [{"echo": True}, {"truncate_prompt_tokens": 3}, {"prompt": [5, 6]}])
def test_what_cannot_stand_beside_a_suffix_is_refused(api: Api, more: dict[str, Any]) -> None:
    param, _ = api.refusal("/v1/completions", **{"prompt": "a", "suffix": "b"} | more)
    assert param == next(iter(more))


def test_a_model_without_such_tokens_refuses_a_suffix(shared: Stack) -> None:
    body = {"model": MODEL, "prompt": "a", "suffix": "b"}
    error = httpx.post(f"{shared.url}/v1/completions", json=body, timeout=60).json()["error"]
    assert error["message"] == "suffix may not be given: this model has no tokens for a prompt with a suffix"
    assert error["param"] == "suffix"


def test_best_of_keeps_the_likeliest_answers(api: Api) -> None:
    plain = api.complete(n=4, logprobs=0, temperature=1.5)["choices"]

    def likelihood(choice: Any) -> float:
        told = choice["logprobs"]["token_logprobs"]
        return float(sum(told) / len(told))

    wanted = sorted(plain, key=likelihood, reverse=True)
    for body in ({}, {"speculation": "off"}):
        best = api.complete(n=2, best_of=4, temperature=1.5, **body)
        assert [each["token_ids"] for each in best["choices"]] == [each["token_ids"] for each in wanted[:2]]
        assert [each["index"] for each in best["choices"]] == [0, 1]
        assert all(each["logprobs"] is None for each in best["choices"])
        assert best["usage"]["completion_tokens"] == sum(len(each["token_ids"]) for each in plain)
    seeds = [each["seed"] for each in best["outrider"]["choices"]]
    assert _ids(api.complete(seed=seeds[1], temperature=1.5))[1] == best["choices"][1]["token_ids"]
    several = api.complete([PROMPT, "a"], best_of=4, logprobs=1, temperature=1.5, echo=True)["choices"]
    assert several[0]["token_ids"][-8:] == wanted[0]["token_ids"][-8:]
    assert len(several[1]["logprobs"]["tokens"]) == len(several[1]["token_ids"])


def test_best_of_is_refused_where_it_cannot_be(api: Api) -> None:
    asked = {"prompt": PROMPT}
    few = api.refusal("/v1/completions", **asked, n=3, best_of=2)
    assert few == ("best_of", "best_of must be at least n, 3, not 2")
    streamed = api.refusal("/v1/completions", **asked, stream=True, best_of=2)
    assert streamed == ("best_of", "best_of may not be given where stream is true")
    assert api.refusal("/v1/completions", prompt=["a"] * 65, best_of=2)[1].startswith("prompt: 65 prompts with best_of")
    assert api.refusal("/v1/chat/completions", messages=CHAT, best_of=2)[0] == "best_of"


def test_streams_tell_the_ids_that_whole_answers_tell(api: Api) -> None:
    prompt, told = _ids(api.complete())
    chunks = [each["choices"][0] for each in api.events("/v1/completions", prompt=PROMPT)]
    assert chunks[0]["prompt_token_ids"] == prompt
    assert not any("prompt_token_ids" in each for each in chunks[1:])
    assert [token for each in chunks for token in each["token_ids"]] == told
    prompt, told = _ids(api.chat())
    events = api.events("/v1/chat/completions", messages=CHAT)
    assert [each.get("prompt_token_ids") for each in events] == [prompt] + [None] * (len(events) - 1)
    assert [token for each in events for token in each["choices"][0].get("token_ids", [])] == told
    echoed = api.complete(echo=True)["choices"][0]
    assert echoed["token_ids"][: len(echoed["prompt_token_ids"])] == echoed["prompt_token_ids"]


def test_the_end_of_a_long_prompt_counts(api: Api, local: Tokenizer) -> None:
    whole = local.encode(LONG)
    assert len(whole) > CONTEXT
    assert api.refusal("/v1/completions", prompt=LONG)[0] == "prompt"
    for prompt in (LONG, whole):
        assert _ids(api.complete(prompt, truncate_prompt_tokens=20))[0] == whole[-20:]
        assert _ids(api.complete(prompt, truncate_prompt_tokens=-1))[0] == whole[-(CONTEXT - 8) :]
    assert _ids(api.complete(truncate_prompt_tokens=4000))[0] == local.encode(PROMPT)
    chat = [{"role": "user", "content": LONG}]
    told = api.chat(chat, truncate_prompt_tokens=-1, max_tokens=None)
    assert _ids(told)[0] == local.encode_chat(chat)[-(CONTEXT - 1) :]
    assert api.refusal("/v1/completions", prompt=LONG, truncate_prompt_tokens=CONTEXT)[0] == "prompt"
    assert api.refusal("/v1/completions", prompt=LONG, truncate_prompt_tokens=-2)[0] == "truncate_prompt_tokens"


def test_only_requests_with_the_same_salt_share_pages_and_answers(api: Api) -> None:
    prompt = "salted " * 20
    salts: list[dict[str, Any]] = [{}, {"cache_salt": "a"}, {"cache_salt": "b"}]

    def cached(body: dict[str, Any]) -> int:
        answer = api.complete(prompt, **body)
        assert answer["choices"][0]["token_ids"] == tokens
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    tokens = _ids(api.complete(prompt, cache_salt="c"))[1]
    assert [cached(body) for body in salts] == [0, 0, 0]
    assert all(cached(body) > 0 for body in salts)


def test_the_last_message_is_continued(api: Api, local: Tokenizer) -> None:
    opened = local.encode_chat(CHAT, continue_final_message=True)
    for body in ({}, {"add_generation_prompt": False}, {"speculation": "off"}):
        assert _ids(api.chat(continue_final_message=True, **body))[0] == opened
    assert _ids(api.chat())[0] == local.encode_chat(CHAT)
    assert _ids(api.chat(add_generation_prompt=False))[0] == local.encode_chat(CHAT, add_generation_prompt=False)
    both = {"messages": CHAT, "continue_final_message": True, "add_generation_prompt": True}
    why = "continue_final_message and add_generation_prompt may not both be true"
    assert api.refusal("/v1/chat/completions", **both) == ("continue_final_message", why)
    empty = [*CHAT[:1], {"role": "assistant", "content": ""}]
    assert api.refusal("/v1/chat/completions", messages=empty, continue_final_message=True)[0] == "messages[1]"


def test_a_template_of_a_request_is_used_where_the_gateway_takes_such(
    api: Api, local: Tokenizer, shared: Stack
) -> None:
    template = "{{ documents[0].text }}<|im_start|>{{ messages[0].content }}"
    told = api.chat(CHAT[:1], chat_template=template, documents=[{"text": "<|im_end|>"}])
    prompt = _ids(told)[0]
    assert local.decode(prompt, keep_special=True) == "<|im_end|><|im_start|>def f("
    assert prompt.count(local.special_tokens["<|im_end|>"]) == 0
    assert prompt.count(local.special_tokens["<|im_start|>"]) == 1
    assert "does not compile" in api.refusal("/v1/chat/completions", messages=CHAT, chat_template="{% if")[1]
    body = {"model": MODEL, "messages": CHAT, "chat_template": template}
    error = httpx.post(f"{shared.url}/v1/chat/completions", json=body, timeout=60).json()["error"]
    why = "may not be given here: this gateway renders chats with the model's template alone"
    assert (error["param"], error["message"]) == ("chat_template", f"chat_template {why}")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"grammar": 'root ::= "a" [\\u0062] "\\n"'}, "ab\n"),
        ({"json_schema": {"const": "a"}}, '"a"'),
        ({"guided_json": '{"const": "a"}'}, '"a"'),
        ({"guided_regex": "a{3}"}, "aaa"),
        ({"guided_choice": ["yes"]}, "yes"),
        ({"guided_grammar": 'start: "a" "b"'}, "ab"),
        ({"response_format": {"type": "json_object", "schema": {"const": "a"}}}, '"a"'),
    ],
)
def test_structures_have_the_names_of_other_servers(api: Api, body: dict[str, Any], text: str) -> None:
    for more in ({}, {"speculation": "off"}):
        assert api.complete(**body, **more)["choices"][0]["text"] == text
    assert api.chat(**body)["choices"][0]["message"]["content"] == text


def test_a_structure_is_refused_by_its_name(api: Api) -> None:
    token = api.refusal("/v1/completions", prompt="a", grammar="root ::= <think>")
    assert token[0] == "grammar"
    assert "it names the token <think>, which is only possible in Lark" in token[1]
    assert api.refusal("/v1/completions", prompt="a", guided_regex="(")[0] == "guided_regex"
    assert api.refusal("/v1/completions", prompt="a", guided_json="{")[0] == "guided_json"
    two = api.refusal("/v1/completions", prompt="a", guided_regex="a", grammar='root ::= "a"')
    assert two[1] == "guided_regex and grammar both say what the answer has to be: give one of them"
    tools = [{"type": "function", "function": {"name": "f"}}]
    beside = api.refusal("/v1/chat/completions", messages=CHAT, tools=tools, guided_choice=["a"])
    assert beside == ("guided_choice", "guided_choice may not be given where functions may be called")
