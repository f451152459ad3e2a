"""The unmodified package anthropic, with strict validation of answers, against a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from httpx_sse import EventSource
from outrider.engine.text import Tokenizer
from outrider.mesh.registry import Registry
from outrider.wire.frames import Finish
from outrider.wire.tenants import Limits

from tests.gateway.calls import PAINT
from tests.gateway.stack import MODEL, Stack
from tests.gateway.streaming import Gateway, finish
from tests.gateway.tenants import TenantStore, audit_lines

pytestmark = pytest.mark.timeout(300)
SAID: Any = [{"role": "user", "content": "def f("}]
OURS = {"seed": 7, "ignore_eos": True}
REQUEST: Any = {"model": MODEL, "messages": SAID, "max_tokens": 40, "extra_body": OURS}
TOOLS: Any = [{"name": "paint", "description": "Paints.", "input_schema": PAINT}]


def client_of(url: str, **key: str) -> anthropic.AsyncAnthropic:
    given = key or {"api_key": "none"}
    return anthropic.AsyncAnthropic(
        base_url=url,
        max_retries=0,
        timeout=60,
        _strict_response_validation=True,
        **given,  # type: ignore[arg-type]
    )


@pytest.fixture
async def client(shared: Stack) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client_of(shared.url) as made:
        yield made


async def test_a_message_is_the_chat_s_answer(shared: Stack, client: anthropic.AsyncAnthropic) -> None:
    raw = await client.messages.with_raw_response.create(**REQUEST, system="be brief")
    made = await raw.parse()
    async with openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0) as other:
        messages: Any = [{"role": "system", "content": "be brief"}, *SAID]
        chat = await other.chat.completions.create(model=MODEL, messages=messages, max_tokens=40, extra_body=OURS)
    (block,) = made.content
    assert block.type == "text"
    assert block.text == chat.choices[0].message.content != ""
    assert (made.stop_reason, made.stop_sequence, made.model) == ("max_tokens", None, MODEL)
    assert chat.usage is not None
    cached = made.usage.cache_read_input_tokens or 0
    assert (made.usage.input_tokens + cached, made.usage.output_tokens) == (chat.usage.prompt_tokens, 40)
    assert raw.headers["request-id"] == raw.headers["x-request-id"] == made.id.removeprefix("msg_")
    count = await client.messages.count_tokens(model=MODEL, messages=SAID, system="be brief")
    assert count.input_tokens == chat.usage.prompt_tokens


async def test_a_stream_makes_up_the_message(client: anthropic.AsyncAnthropic) -> None:
    whole = await client.messages.create(**REQUEST)
    told = [event async for event in await client.messages.create(**REQUEST, stream=True)]
    kinds = [event.type for event in told]
    deltas = kinds.count("content_block_delta")
    assert deltas > 1
    ends = ["content_block_stop", "message_delta", "message_stop"]
    assert kinds == ["message_start", "content_block_start", *["content_block_delta"] * deltas, *ends]
    async with client.messages.stream(**REQUEST) as stream:
        final = await stream.get_final_message()
    assert final.content[0].to_dict() == whole.content[0].to_dict()
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, 40)


async def test_the_stop_sequence_that_ended_a_message_is_named(client: anthropic.AsyncAnthropic) -> None:
    text = (await client.messages.create(**REQUEST)).content[0].text  # type: ignore[union-attr]
    stop = text[12:15]
    asked = REQUEST | {"stop_sequences": ["not in it", stop]}
    made = await client.messages.create(**asked)
    async with client.messages.stream(**asked) as stream:
        streamed = await stream.get_final_message()
    for each in (made, streamed):
        assert (each.stop_reason, each.stop_sequence) == ("stop_sequence", stop)
        assert "".join(block.text for block in each.content if block.type == "text") == text[: text.index(stop)]


async def test_a_tool_is_called_and_its_result_sent_back(calling: Stack) -> None:
    mark = Tokenizer.load(calling.directory).added_token("<tool_call>")
    asked: Any = {"model": MODEL, "messages": SAID, "max_tokens": 400, "tools": TOOLS}
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    async with client_of(calling.url) as client:
        for more in ({"tool_choice": choice}, {"tool_choice": {"type": "tool", "name": "paint"}}):
            whole = await client.messages.create(**asked | more, extra_body={"seed": 3})
            async with client.messages.stream(**asked | more, extra_body={"seed": 3}) as stream:
                kinds = [event.type async for event in stream]
                streamed = await stream.get_final_message()
            (call,) = whole.content
            assert call.type == "tool_use"
            assert (call.name, call.input.keys(), whole.stop_reason) == ("paint", {"colour", "coats"}, "tool_use")
            assert kinds.count("input_json") > 1
            (again,) = streamed.content
            assert again.type == "tool_use"
            assert (again.input, streamed.stop_reason) == (call.input, "tool_use")
        optional = {"logit_bias": {str(mark): 100}}
        called = await client.messages.create(**asked, tool_choice={"type": "auto"}, extra_body=optional)
        assert called.content[-1].type == "tool_use"
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "done", "is_error": False}
        said: Any = [*SAID, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
        after = await client.messages.create(**asked | {"messages": said}, tool_choice={"type": "none"})
        assert all(block.type == "text" for block in after.content)


async def test_errors_are_those_of_anthropic(client: anthropic.AsyncAnthropic, directory: Path) -> None:
    with pytest.raises(anthropic.BadRequestError, match="temperature") as refused:
        await client.messages.create(**REQUEST | {"extra_body": {"temperature": -1}})
    assert refused.value.type == "invalid_request_error"
    assert refused.value.request_id
    assert refused.value.body["request_id"] == refused.value.request_id  # type: ignore[index,call-overload]
    with pytest.raises(anthropic.NotFoundError, match="does not exist") as unknown:
        await client.messages.create(**REQUEST | {"model": "none"})
    assert unknown.value.type == "not_found_error"
    with pytest.raises(anthropic.NotFoundError, match="no such path"):
        await client.messages.batches.list()
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        await client.messages.create(**REQUEST | {"messages": [{"role": "user", "content": "é" * 9000}]})
    every = [[token] for token in range(Tokenizer.load(directory).vocabulary_size)]
    with pytest.raises(anthropic.APIStatusError, match="leave no token"):
        async for _ in await client.messages.create(**REQUEST | {"extra_body": {"bad_words": every}}, stream=True):
            pass


@pytest.mark.parametrize(
    ("method", "path", "data", "status"),
    [
        ("POST", "/v1/messages", b"{", 400),
        ("POST", "/v1/messages", b"[]", 400),
        ("POST", "/v1/messages", b'{"messages": [7]}', 400),
        ("POST", "/v1/messages", b'{"messages": [{"role": "user", "content": [7]}]}', 400),
        ("POST", "/v1/messages", b'{"messages": [{"role": "user", "content": "a"}], "tools": [7]}', 400),
        ("POST", "/v1/messages", b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": "many"}', 400),
        ("POST", "/v1/messages/count_tokens", b"{}", 400),
        ("POST", "/v1/messages", b'{"messages": [], "messages": []}', 400),
        ("POST", "/v1/messages", b'"' + b"a" * (2 << 20) + b'"', 413),
        ("GET", "/v1/messages", b"", 405),
    ],
)
async def test_rubbish_is_refused_with_a_sentence(
    shared: Stack, method: str, path: str, data: bytes, status: int
) -> None:
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as http:
        answer = await http.request(method, path, content=data, headers={"content-type": "application/json"})
    error = answer.json()
    assert (answer.status_code, error["type"]) == (status, "error")
    assert error["error"]["type"] == {413: "request_too_large"}.get(status, "invalid_request_error")
    assert error["error"]["message"]
    assert answer.headers["request-id"] == error["request_id"]


async def test_models_are_listed_in_the_form_of_whoever_asks(shared: Stack, client: anthropic.AsyncAnthropic) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    model = await client.models.retrieve(MODEL)
    assert (model.type, model.max_input_tokens) == ("model", 4096)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        await client.models.retrieve("none")
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as http:
        assert (await http.get("/v1/models")).json()["object"] == "list"


async def test_keys_limits_and_the_audit_log_are_those_of_all_apis(
    urls: list[str], audit_log: Path, tenant_store: TenantStore
) -> None:
    key, text = await tenant_store.key(Limits(requests_per_minute=2))
    async with client_of(urls[0], api_key=text) as client:
        assert (await client.messages.create(**REQUEST | {"max_tokens": 2})).content
    async with client_of(urls[0], auth_token=text) as client:
        assert (await client.messages.create(**REQUEST | {"max_tokens": 2})).content
        with pytest.raises(anthropic.RateLimitError) as limited:
            await client.messages.create(**REQUEST)
    assert limited.value.type == "rate_limit_error"
    assert int(limited.value.response.headers["retry-after"]) > 0
    (told,) = await audit_lines(audit_log, 1, actor=f"key {key.id}")
    assert (told["event"], told["door"], told["request"]) == ("limit_reached", "http", limited.value.request_id)
    async with client_of(urls[0], api_key="none") as client:
        with pytest.raises(anthropic.AuthenticationError) as wrong:
            await client.messages.create(**REQUEST)
    assert wrong.value.type == "authentication_error"


CLAUDE_CODE: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 8,
    "stream": True,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nnoon\n</system-reminder>"}]},
        {
            "role": "system",
            "content": [{"type": "text", "text": "# Environment", "cache_control": {"type": "ephemeral"}}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "EqQBCkgIChgCKkA"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_01", "name": "Read", "input": {"file_path": "/a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_01",
                    "content": [{"type": "text", "text": "1\tdef f("}],
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ],
    "tools": [
        {
            "name": "Read",
            "description": "Reads a file.",
            "input_schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {"file_path": {"type": "string"}},
                "required": ["file_path"],
                "additionalProperties": False,
            },
        },
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True},
    ],
    "metadata": {"user_id": '{"device_id":"5","account_uuid":"","session_id":"b"}'},
    "thinking": {"type": "adaptive", "display": "omitted"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}
"""A request as Claude Code 2.1 sends it, shortened."""


async def test_claude_code_s_requests_are_answered(shared: Stack) -> None:
    betas = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27"
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": betas, "authorization": "Bearer sk-x"}
    async with (
        httpx.AsyncClient(base_url=shared.url, timeout=60) as http,
        http.stream("POST", "/v1/messages?beta=true", json=CLAUDE_CODE, headers=headers) as response,
    ):
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-outrider-ignored"].split(", ") == [
            "context_management",
            "output_config.effort",
            "messages[2].content[0].signature",
            "tools[1].web_search_20250305",
        ]
        told = [(event.event, event.json()) async for event in EventSource(response).aiter_sse()]
    assert all(name == data["type"] for name, data in told)
    assert [name for name, _ in told][:2] == ["message_start", "ping"]
    start, (_, change), (end, _) = told[0][1]["message"], told[-2], told[-1]
    assert (start["role"], start["stop_reason"], start["content"]) == ("assistant", None, [])
    assert end == "message_stop"
    used = change["usage"]
    assert used["input_tokens"] + used["cache_read_input_tokens"] == start["usage"]["input_tokens"]
    counted = {name: CLAUDE_CODE[name] for name in ("model", "messages", "system", "tools", "thinking")}
    async with httpx.AsyncClient(base_url=shared.url, timeout=60) as http:
        count = await http.post("/v1/messages/count_tokens?beta=true", json=counted, headers=headers)
    assert count.json() == {"input_tokens": start["usage"]["input_tokens"]}


@pytest.mark.usefixtures("halted")
async def test_a_client_that_leaves_ends_the_generation(one: Gateway, streaming_registry: Registry) -> None:
    async with client_of(one.url) as client:
        stream = await client.messages.create(**REQUEST | {"max_tokens": 400}, stream=True)
        delta = None
        async for event in stream:
            if event.type == "message_start":
                request = event.message.id.removeprefix("msg_")
            if event.type == "content_block_delta":
                delta = event
                break
        await stream.close()
    assert delta is not None
    assert await finish(streaming_registry, request) is Finish.CANCELLED
