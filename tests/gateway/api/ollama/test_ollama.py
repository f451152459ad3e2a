"""Ollama's API against a gateway. `make clients-check` asks it with the unmodified package ollama."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from outrider.gateway.api.ollama.bodies import CHAT, GENERATE, ChatRequest, GenerateRequest
from outrider.gateway.api.ollama.json_types import Call, Called, Said
from outrider.gateway.api.ollama.lines import Pieces
from outrider.gateway.api.openai.json_types import Delta, DeltaChoice
from outrider.gateway.api.schema.parameters import read
from outrider.gateway.api.schema.tools import CalledFunction, ToolCall
from outrider.mesh.errors import InvalidRequest

from tests.gateway.calls import TOOLS
from tests.gateway.stack import CONTEXT, MODEL, Stack

pytestmark = pytest.mark.timeout(300)
SAID: Any = [{"role": "user", "content": "def f("}]
OPTIONS = {"seed": 7, "num_predict": 30, "temperature": 0.8, "num_ctx": 4096}
BODY: Any = {"model": MODEL, "options": OPTIONS}


@pytest.fixture
async def http(shared: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=120, trust_env=False) as made:
        yield made


async def posted(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def lines(http: httpx.AsyncClient, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = await http.post(path, json=body)
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_chat_is_openai_s_whole_and_in_lines(http: httpx.AsyncClient) -> None:
    whole = await posted(http, "/api/chat", **BODY, messages=SAID, stream=False)
    asked = {"model": MODEL, "messages": SAID, "seed": 7, "max_tokens": 30, "temperature": 0.8}
    (choice,) = (await posted(http, "/v1/chat/completions", **asked))["choices"]
    assert whole["message"] == {"role": "assistant", "content": choice["message"]["content"]}
    assert (whole["done"], whole["done_reason"], whole["eval_count"]) == (True, choice["finish_reason"], 30)
    told = await lines(http, "/api/chat", **BODY, messages=SAID)
    assert "".join(line["message"]["content"] for line in told) == whole["message"]["content"] != ""
    assert [line["done"] for line in told] == [False] * (len(told) - 1) + [True]
    assert told[-1]["prompt_eval_count"] == whole["prompt_eval_count"] > 0 < told[-1]["total_duration"]
    answer = await http.post("/api/chat", json={**BODY, "messages": SAID, "stream": False})
    assert answer.headers["x-outrider-ignored"] == "options.num_ctx"


async def test_a_raw_prompt_is_a_completion_and_another_a_chat(http: httpx.AsyncClient) -> None:
    raw = await posted(http, "/api/generate", **BODY, prompt="def f(", raw=True, stream=False)
    asked = {"model": MODEL, "prompt": "def f(", "seed": 7, "max_tokens": 30, "temperature": 0.8}
    assert raw["response"] == (await posted(http, "/v1/completions", **asked))["choices"][0]["text"] != ""
    told = await lines(http, "/api/generate", **BODY, prompt="def f(", system="be brief")
    messages = [{"role": "system", "content": "be brief"}, *SAID]
    chat = await posted(http, "/api/chat", **BODY, messages=messages, stream=False)
    assert "".join(line["response"] for line in told) == chat["message"]["content"]


async def test_a_system_s_message_without_a_chat_is_refused_or_named(http: httpx.AsyncClient) -> None:
    """With ``raw`` Ollama refuses it, with ``suffix`` its template has no place for it (server/routes.go)."""
    asked: Any = {**BODY, "prompt": "def f(", "system": "be brief", "stream": False}
    refused = await http.post("/api/generate", json={**asked, "raw": True})
    assert (refused.status_code, "system must be absent with raw" in refused.json()["error"]) == (400, True)
    ignored: list[str] = []
    read(json.dumps({**asked, "suffix": "end"}).encode(), GenerateRequest, GENERATE, ignored).openai(ignored)
    assert "system" in ignored


async def test_options_are_all_that_completions_honour(http: httpx.AsyncClient) -> None:
    (token,) = (await posted(http, "/v1/tokenize", prompt="a", add_special_tokens=False))["tokens"]
    options = {"num_predict": 3, "repeat_last_n": 8, "logit_bias": {str(token): 100}, "seed": -1}
    asked: Any = {"model": MODEL, "options": options, "stream": False}
    assert (await posted(http, "/api/generate", **asked, prompt="b", raw=True))["response"] == "aaa"
    assert (await posted(http, "/api/chat", **asked, messages=SAID))["message"]["content"] == "aaa"
    bound = {"num_predict": -2, "grammar": 'root ::= "yes" | "no"', "n": 2}
    answer = await http.post("/api/chat", json={"model": MODEL, "messages": SAID, "options": bound, "stream": False})
    assert answer.json()["message"]["content"] in ("yes", "no")
    assert answer.headers["x-outrider-ignored"] == "options.n"


async def test_formats_hold(http: httpx.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    free = {"model": MODEL, "options": {"seed": 1}, "format": schema, "stream": False}
    chat = await posted(http, "/api/chat", **free, messages=SAID)
    raw = await posted(http, "/api/generate", **free, prompt="def f(", raw=True)
    assert {json.loads(chat["message"]["content"])["a"], json.loads(raw["response"])["a"]} <= {"x", "y"}


async def test_models_are_listed_and_shown(http: httpx.AsyncClient) -> None:
    for path in ("/api/tags", "/api/ps"):
        (model,) = (await http.get(path)).json()["models"]
        assert (model["name"], model["model"]) == (MODEL, MODEL)
    shown = await posted(http, "/api/show", model=f"{MODEL}:latest")
    assert shown["model_info"]["outrider.context_length"] == CONTEXT
    assert "completion" in shown["capabilities"]
    assert (await http.get("/api/version")).json()["version"]
    loaded = await posted(http, "/api/generate", model=MODEL)
    assert (loaded["done_reason"], loaded["response"]) == ("load", "")


async def test_embeddings_are_openai_s(http: httpx.AsyncClient) -> None:
    made = await posted(http, "/api/embed", model=MODEL, input=["a", "def f("], truncate=True)
    theirs = await posted(http, "/v1/embeddings", input=["a", "def f("])
    assert made["embeddings"] == [each["embedding"] for each in theirs["data"]]
    assert made["prompt_eval_count"] == theirs["usage"]["prompt_tokens"]
    assert (await posted(http, "/api/embeddings", model=MODEL, prompt="a"))["embedding"] == made["embeddings"][0]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("chat", {"messages": SAID}, 400, "model is required"),
        ("chat", {"model": "other", "messages": SAID}, 404, "other"),
        ("chat", {"model": MODEL, "messages": [{"role": "user", "content": "a", "images": ["x"]}]}, 400, "images"),
        ("chat", {"model": MODEL, "messages": SAID, "options": {"temperature": -1}}, 400, "temperature must be"),
        ("chat", {"model": MODEL, "messages": SAID, "format": "xml"}, 400, "format must be"),
        ("generate", {"model": MODEL, "prompt": "a", "images": ["x"]}, 400, "images is not supported"),
        ("generate", {"model": MODEL, "prompt": "a", "options": {"num_predict": 0}}, 400, "num_predict must be"),
        ("show", {}, 400, "model is required"),
        ("embed", {"model": MODEL, "input": ["a", ""]}, 400, "input[1] must hold at least one token"),
        ("pull", {"model": MODEL}, 404, "no such path"),
    ],
)
async def test_errors_have_ollama_s_form(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    answer = await http.post(f"/api/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    assert message in answer.json()["error"]


def test_calls_are_told_when_they_are_complete() -> None:
    pieces, begun = Pieces(), CalledFunction("", "paint")
    said = [
        pieces.take(DeltaChoice(Delta(content="Now: ", reasoning_content="hm"), None)),
        pieces.take(DeltaChoice(Delta(tool_calls=[ToolCall(begun, id="call_1", index=0)]), None)),
        pieces.take(DeltaChoice(Delta(tool_calls=[ToolCall(CalledFunction('{"coats":'), index=0)]), None)),
        pieces.take(DeltaChoice(Delta(tool_calls=[ToolCall(CalledFunction(" 2}"), index=0)]), None)),
    ]
    assert said == [Said("Now: ", "hm"), Said(), Said(), Said()]
    assert pieces.calls == [Call(Called("paint", {"coats": 2}))]
    assert begun.arguments == ""


def test_calls_and_results_become_those_of_a_chat() -> None:
    call = {"function": {"name": "paint", "arguments": {"coats": 2}}}
    said = [*SAID, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_name": "paint", "content": "ok"}]
    body = read({"model": MODEL, "messages": said, "tools": TOOLS, "think": "low"}, ChatRequest, CHAT)
    chat = body.openai(None)
    (made,) = chat.messages[1]["tool_calls"]
    assert (made["function"], made["type"]) == ({"name": "paint", "arguments": '{"coats":2}'}, "function")
    assert chat.messages[2] == {"role": "tool", "content": "ok", "name": "paint", "tool_call_id": made["id"]}
    assert [tool.function.name for tool in chat.tools] == ["paint", "wait"]
    assert (chat.enable_thinking, chat.reasoning_effort) == (True, "low")


def test_a_call_without_a_function_is_refused() -> None:
    body = read({"model": MODEL, "messages": [{"role": "assistant", "tool_calls": [{}]}]}, ChatRequest, CHAT)
    with pytest.raises(InvalidRequest, match=r"messages\[0\].tool_calls\[0\].function"):
        body.openai(None)
