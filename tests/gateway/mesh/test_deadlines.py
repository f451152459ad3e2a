"""Deadlines of clients, on an overloaded mesh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from outrider.mesh.registry import Registry
from outrider.wire.tenants import Limits

from tests.gateway.deadlines import SOON_MS, answers_seem_short, ask, body
from tests.gateway.stack import CONTEXT, RUNNING, Stack, Streamed, events
from tests.gateway.tenants import TenantStore
from tests.latch import FEW
from tests.waiting import eventually

LONG = CONTEXT // 2


@asynccontextmanager
async def busy(shared: Stack, registry: Registry, streams: list[Streamed], pace_s: float = 0.0) -> AsyncIterator[None]:
    """Waits for the first tokens of the streams, at least ``pace_s`` seconds for each, and halts them there."""
    with shared.latch.at(FEW, pace_s):
        reading = [asyncio.create_task(stream.run()) for stream in streams]
        await eventually(lambda: all(len(stream.tokens) == FEW for stream in streams))
        yield
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)
        await eventually(lambda: all(not member.status["load"] for member in registry.members("verifier")))


async def test_of_two_in_a_hurry_the_one_that_must_miss_is_refused_and_the_other_is_in_time(
    shared: Stack, registry: Registry
) -> None:
    crowd = [Streamed(shared.url, prompt=f"crowd {n}", max_tokens=CONTEXT - 100) for n in range(RUNNING)]
    async with busy(shared, registry, crowd, pace_s=0.02):
        waiting = asyncio.create_task(ask(shared.url, ttft_ms=3_600_000))
        tight, total = await asyncio.gather(
            ask(shared.url, ttft_ms=SOON_MS),
            ask(shared.url, {"x-request-timeout-ms": str(SOON_MS)}),
        )
    loose = await waiting
    assert loose.status_code == 200
    assert tight.status_code == total.status_code == 429
    assert tight.json()["error"]["code"] == total.json()["error"]["code"] == "deadline_unmeetable"
    assert (tight.json()["error"]["param"], total.json()["error"]["param"]) == ("ttft_ms", "timeout_ms")
    assert int(tight.headers["retry-after"]) >= 1


async def test_an_answer_that_never_fits_is_refused_without_a_time_to_come_back(shared: Stack) -> None:
    refused = await ask(shared.url, timeout_ms=1, max_tokens=LONG)
    assert refused.json()["error"]["code"] == "deadline_unmeetable"
    assert "with nothing else to do" in refused.json()["error"]["message"]
    assert "retry-after" not in refused.headers


async def test_a_stream_that_is_cut_off_ends_with_an_error(shared: Stack) -> None:
    await answers_seem_short(shared.url)
    asked = body(max_tokens=CONTEXT - 100, stop=["nobody says this"], timeout_ms=SOON_MS, stream=True)
    with shared.latch.at(FEW):
        async with (
            httpx.AsyncClient(timeout=60) as http,
            http.stream("POST", f"{shared.url}/v1/completions", json=asked) as response,
        ):
            *chunks, last = [event async for event in events(response)]
        whole = await ask(shared.url, **asked | {"stream": False})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert (last["error"]["type"], last["error"]["code"]) == ("timeout_error", "deadline_exceeded")
    assert (whole.status_code, whole.json()["error"]["param"]) == (504, "timeout_ms")


async def test_what_was_dropped_in_the_queue_is_not_charged(
    shared: Stack, registry: Registry, urls: list[str], tenant_store: TenantStore
) -> None:
    (_, key), (_, another) = await tenant_store.key(own=Limits(tokens_per_day=10_000)), await tenant_store.key()
    headers = {"authorization": f"Bearer {key}"}
    streams = [
        Streamed(urls[0], prompt=f"crowd {n}", max_tokens=LONG, stop=["nobody says this"]) for n in range(RUNNING)
    ]
    for stream in streams:
        stream.headers = {"authorization": f"Bearer {another}"}
    await answers_seem_short(shared.url)
    async with busy(shared, registry, streams):
        dropped = await ask(urls[0], headers, ttft_ms=SOON_MS)
    assert (dropped.status_code, dropped.json()["error"]["code"]) == (504, "deadline_exceeded")
    served = await ask(urls[0], headers)
    left = int(served.headers["x-ratelimit-remaining-tokens"])
    assert left == 10_000 - served.json()["usage"]["prompt_tokens"] - 8


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "soon", "99999999999999"])
async def test_a_header_that_is_no_time_is_refused(shared: Stack, given: str) -> None:
    refused = await ask(shared.url, {"x-request-timeout-ms": given})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("x-request-timeout-ms must be an integer from 1 to")
