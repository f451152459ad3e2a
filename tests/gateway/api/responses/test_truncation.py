"""Conversations that are too long lose their oldest messages where that is asked for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from outrider.gateway.api.responses.truncation import truncated

from tests.gateway.stack import CONTEXT, MODEL
from tests.gateway.streaming import Gateway

pytestmark = pytest.mark.timeout(300)
CALLED: Any = {"role": "assistant", "content": "", "tool_calls": []}


def say(role: str, text: str = "a") -> dict[str, Any]:
    return {"role": role, "content": text}


LONG = [say("developer"), *[say("user"), CALLED, say("tool"), say("tool"), say("assistant")] * 3, say("user")]


@pytest.mark.parametrize(("most", "kept"), [(99, 17), (16, 12), (12, 12), (11, 7), (7, 7), (6, 2), (2, 2), (0, 2)])
async def test_the_longest_end_that_fits_is_kept_from_a_message_of_the_user_on(most: int, kept: int) -> None:
    async def fits(messages: list[dict[str, Any]]) -> bool:
        return len(messages) <= most

    rest = await truncated(LONG, fits)
    assert len(rest) == kept
    assert rest[0]["role"] == "developer"
    assert rest[1:] == LONG[len(LONG) - kept + 1 :]
    assert rest[1]["role"] == "user"


async def test_a_result_is_not_kept_without_its_call_and_the_last_message_always() -> None:
    calling = [say("user"), *[CALLED, say("tool"), say("tool")] * 4]

    async def fits(messages: list[dict[str, Any]]) -> bool:
        return len(messages) <= 8

    assert await truncated(calling, fits) == calling[-6:]
    assert await truncated(calling[:1], fits) == calling[:1]

    async def never(messages: list[dict[str, Any]]) -> bool:
        return False

    assert await truncated(calling, never) == calling[-3:]


def test_a_conversation_that_is_too_long_is_answered_without_its_beginning(one: Gateway) -> None:
    said = [say("user" if place % 2 == 0 else "assistant", f"{place}" * (CONTEXT // 8)) for place in range(15)]
    asked: dict[str, Any] = {"model": MODEL, "instructions": "be brief", "max_output_tokens": 20, "temperature": 0}
    with httpx.Client(base_url=one.url, timeout=60) as http:
        refused = http.post("/v1/responses", json=asked | {"input": said})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        cut = http.post("/v1/responses", json=asked | {"input": said, "truncation": "auto"})
        made = cut.json()
        (name,) = made["outrider"]["ignored"]
        dropped = int(name.removeprefix("input/").partition("_")[0])
        assert (name, cut.headers["x-outrider-ignored"]) == (f"input/{dropped}_oldest_of_15", name)
        assert (made["truncation"], dropped % 2) == ("auto", 0)
        rest = http.post("/v1/responses", json=asked | {"input": said[dropped:]}).json()
        assert (rest["output"][0]["content"], rest["usage"]["input_tokens"], rest["truncation"]) == (
            made["output"][0]["content"],
            made["usage"]["input_tokens"],
            "disabled",
        )
        assert http.post("/v1/responses", json=asked | {"input": said[dropped - 2 :]}).status_code == 400
        counted = http.post("/v1/responses/input_tokens", json=asked | {"input": said, "truncation": "auto"}).json()
        assert counted["input_tokens"] == made["usage"]["input_tokens"]
        items = http.get(f"/v1/responses/{made['id']}/input_items").json()["data"]
        assert len(items) == 15
        short = http.post("/v1/responses", json=asked | {"input": "a", "truncation": "auto"}).json()
        assert "ignored" not in short["outrider"]
