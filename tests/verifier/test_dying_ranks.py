"""Verifiers over two ranks: the end of either rank is the verifier's, and streams go on elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.stack import Stack, Streamed, save_model, stack
from tests.latch import FEW
from tests.processes import followers
from tests.waiting import eventually

LENGTH, STREAMS = 60, 8


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A tokenizer and a gateway; the test starts verifiers."""
    model = save_model(tmp_path_factory.mktemp("models") / "toy", kv_heads=2)
    with stack(model, tmp_path_factory.mktemp("logs")) as made:
        made.add("gateway", port=made.port, silence_s=0.5, place_s=240, resume_s=240)
        made.add_model("tokenizer")
        yield made


async def _streams(mesh: Stack, meanwhile: Callable[[], None] = lambda: None) -> list[Streamed]:
    """Eight streams, and the function when all have begun and none has ended."""
    streams = [Streamed(mesh.url, prompt=f"def f{seed}(", seed=seed, max_tokens=LENGTH) for seed in range(STREAMS)]
    async with asyncio.TaskGroup() as group:
        with mesh.latch.at(FEW):
            for stream in streams:
                group.create_task(stream.run())
            await eventually(lambda: all(stream.tokens for stream in streams))
            await asyncio.to_thread(meanwhile)
    return streams


async def test_no_stream_notices_the_death_of_either_rank(mesh: Stack) -> None:
    settings: dict[str, Any] = {"tensor_parallel": 2, "threads": 1, "pages": 256}
    first, second = (mesh.add_model("verifier", instance=name, **settings) for name in ("first", "second"))
    for each in (first, second):
        await asyncio.to_thread(each.wait_ready)
    await asyncio.to_thread(mesh.wait_ready)
    expected = await _streams(mesh)

    (pid,) = followers(first.pid)
    seen = await _streams(mesh, lambda: os.kill(pid, signal.SIGKILL))
    await eventually(lambda: not first.alive)
    first.kill()
    assert [each.tokens for each in seen] == [each.tokens for each in expected]

    first.start()
    await asyncio.to_thread(first.wait_ready)
    (pid,) = followers(second.pid)
    seen = await _streams(mesh, second.kill)
    assert [each.tokens for each in seen] == [each.tokens for each in expected]
    await eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert all(len(each.tokens) == LENGTH for each in seen)
