"""Frozen verifiers: they neither answer nor close their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.stack import MODEL, Stack, Streamed, stack
from tests.latch import FEW
from tests.processes import ServiceProcess
from tests.waiting import eventually


@pytest.fixture(scope="module")
def mesh(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A gateway with short time limits, a verifier that stays, and a preferred one that tests stop."""
    with stack(directory, tmp_path_factory.mktemp("logs")) as made:
        patience = {"submit_s": 0.5, "breaker_failures": 1, "breaker_open_s": 0.1, "silence_s": 0.3}
        made.add("gateway", port=made.port, place_s=240, router="cost", **patience)
        made.add_model("tokenizer")
        made.add_model("verifier", instance="stays", cost=1000)
        made.add_model("verifier", instance="freezes").wait_ready()
        made.wait_ready()
        yield made


@pytest.fixture(scope="module")
def cheap(mesh: Stack) -> ServiceProcess:
    """The verifier that is asked first while it answers."""
    return next(process for process in mesh.processes if process.settings.get("instance") == "freezes")


@pytest.fixture
def frozen(cheap: ServiceProcess) -> Iterator[ServiceProcess]:
    """That verifier, for a test to stop."""
    yield cheap
    cheap.thaw()


async def test_a_verifier_that_is_stopped_is_asked_last_until_it_answers_again(
    mesh: Stack, frozen: ServiceProcess
) -> None:
    await eventually_served_by(mesh, "freezes")
    frozen.freeze()
    assert await served_by(mesh) == "stays"
    assert breaker(mesh) == 1
    frozen.thaw()
    await eventually_served_by(mesh, "freezes")
    assert breaker(mesh) == 0


async def test_a_verifier_that_is_stopped_before_its_first_frame_loses_the_request_to_another(
    mesh: Stack, frozen: ServiceProcess
) -> None:
    alone = Streamed(mesh.url, prompt="def f(", seed=5, max_tokens=300)
    await alone.run()
    await eventually_served_by(mesh, "freezes")
    stream = Streamed(mesh.url, prompt="def f(", seed=5, max_tokens=300)
    with mesh.latch.at(FEW):
        reading = asyncio.create_task(stream.run())
        await eventually(lambda: stream.id)
        frozen.freeze()
    await reading
    assert stream.tokens == alone.tokens
    assert stream.last["verifier"] == "stays"


async def test_a_request_is_tried_where_nobody_answers(mesh: Stack, frozen: ServiceProcess) -> None:
    stays = next(process for process in mesh.processes if process.settings.get("instance") == "stays")
    await eventually_served_by(mesh, "freezes")
    before = given_up(mesh)
    for process in (stays, frozen):
        process.freeze()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(served_by(mesh))
        await eventually(lambda: given_up(mesh) > before)
        frozen.thaw()
    stays.thaw()
    assert asked.result() in ("freezes", "stays")


async def test_a_deadline_holds_where_nobody_answers(mesh: Stack, frozen: ServiceProcess) -> None:
    await eventually_served_by(mesh, "freezes")
    asked = {"model": MODEL, "prompt": "a", "timeout_ms": 1000, "max_tokens": 4}
    stays = next(process for process in mesh.processes if process.settings.get("instance") == "stays")
    for process in (stays, frozen):
        process.freeze()
    late = await asyncio.to_thread(httpx.post, f"{mesh.url}/v1/completions", json=asked, timeout=60)
    stays.thaw()
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
async def test_five_mebibytes_of_text_travel_and_are_refused_for_their_length(mesh: Stack, path: str) -> None:
    said = "x" * (5 << 20)
    asked = {"model": MODEL} | (
        {"prompt": said} if path == "completions" else {"messages": [{"role": "user", "content": said}]}
    )
    refused = await asyncio.to_thread(httpx.post, f"{mesh.url}/v1/{path}", json=asked, timeout=60)
    assert refused.status_code == 400
    assert "at least" in refused.json()["error"]["message"], "it was not tokenized to be counted"
    assert "maximum context length is 4096 tokens" in refused.json()["error"]["message"]


async def served_by(mesh: Stack) -> str:
    stream = Streamed(mesh.url, prompt="a", max_tokens=1)
    await stream.run()
    return str(stream.last["verifier"])


async def eventually_served_by(mesh: Stack, instance: str) -> None:
    async with asyncio.timeout(60):
        while await served_by(mesh) != instance:
            await asyncio.sleep(0.05)


def given_up(mesh: Stack) -> int:
    return mesh.processes[0].log.read_text().count("does not answer")


def breaker(mesh: Stack) -> float:
    lines = httpx.get(f"{mesh.url}/metrics").text.splitlines()
    return float(next(line for line in lines if 'breaker_open{verifier="freezes"}' in line).split()[-1])
