"""Holds many idle and some busy streams for minutes, and looks for leaks: `python -m outrider.loadtest soak`.

Idle streams wait for their first token: their requests have the lowest priority at a verifier with one slot for every
eight busy readers, which send requests without a pause. The experiment counts what every process holds before the load
and after the last stream, and samples memory every ten seconds. The exit code is 1 if a process still holds something,
or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import uvloop
from outrider.loadtest.load import prompts
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.meshes.local_mesh import LocalMesh
from outrider.loadtest.report import bars, leaks
from outrider.loadtest.report.bars import Bar
from outrider.loadtest.report.leaks import Counts

_SAMPLE_S = 10.0
_SETTLE_S = 30.0
_NEVER = 1_000_000_000.0
_READERS_A_SLOT = 8
"""Enough that requests of higher priority always wait."""
_AT_A_TIME, _BUSY = 16, 503
"""Streams that end at once, and the status of an overloaded ledger."""
_LAST = 1000
"""The lowest priority, in vLLM's order."""


class Streams:
    """Readers of one gateway; counts finished streams, and events of idle ones."""

    def __init__(self, url: str, max_tokens: int) -> None:
        self._max_tokens, self._texts = max_tokens, itertools.cycle(prompts.held_out(300))
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self.http = httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False)
        self.finished = self.events = 0
        self._seeds, self._deletions = itertools.count(), asyncio.Semaphore(_AT_A_TIME)

    async def busy(self, stop: asyncio.Event) -> None:
        """Sends requests until ``stop`` is set; deletes each stream at its end."""
        while not stop.is_set():
            async with self._ask(priority=0) as response:
                await response.aread()
            await self._delete(response)
            self.finished += 1

    async def idle(self, opened: asyncio.Semaphore, stop: asyncio.Event) -> None:
        """Opens a stream that waits; deletes the stream when ``stop`` is set."""
        async with self._ask(priority=_LAST) as response:
            opened.release()
            reading = asyncio.create_task(self._listen(response))
            await stop.wait()
            await self._delete(response)
            await reading

    async def _listen(self, response: httpx.Response) -> None:
        async for data in response.aiter_bytes():
            self.events += data.count(b'"choices"')

    def _ask(self, priority: int) -> Any:
        body = {
            "prompt": next(self._texts),
            "max_tokens": self._max_tokens,
            "seed": next(self._seeds),
            "ignore_eos": True,
            "priority": priority,
            "stream": True,
        }
        return self.http.stream("POST", "/v1/completions", json=body)

    async def _delete(self, response: httpx.Response) -> None:
        response.raise_for_status()
        async with self._deletions:
            while True:
                deleted = await self.http.delete(f"/v1/streams/{response.headers['x-request-id']}")
                if deleted.status_code != _BUSY:
                    break
                await asyncio.sleep(1)
        deleted.raise_for_status()


def main() -> int:
    """Holds the streams, prints what each process held before, at most and after; returns 1 if something leaks."""
    options = _options()
    settings = {
        "verifier.max_running": str(max(1, options.busy // _READERS_A_SLOT)),
        "verifier.max_waiting": str(options.idle + options.busy + 1),
        "verifier.priority_aging_s": str(_NEVER),
    }
    with local_mesh.running(settings) as mesh:
        before, highest, after, memory, streams = uvloop.run(_hold(options, mesh))
    print(f"{options.idle} idle streams heard {streams.events} events, {streams.finished} busy ones ended")
    print(leaks.table(before, highest, after))
    print(leaks.memory_table(memory))
    judged = leaks.judge(before, after, memory, options.slack)
    judged.append(Bar("idle streams held at once", highest["gateway streams"], options.idle))
    bars.publish(options.out, judged, options=vars(options), before=before, most=highest, after=after, memory=memory)
    return int(not all(bar.met for bar in judged))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest soak", description=__doc__)
    parser.add_argument("--idle", type=int, default=1000, help="streams that wait")
    parser.add_argument("--busy", type=int, default=64, help="readers that send requests without a pause")
    parser.add_argument("--max-tokens", type=int, default=300, help="tokens a request")
    parser.add_argument("--seconds", type=float, default=300.0, help="seconds to hold the streams")
    parser.add_argument("--slack", type=float, default=0.05, help="share by which memory may grow")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.idle, options.busy - 1, options.max_tokens) < 1 or options.seconds <= 0:
        parser.error("--idle and --max-tokens must be at least 1, --busy at least 2, --seconds above 0")
    return options


async def _hold(options: argparse.Namespace, mesh: LocalMesh) -> tuple[Counts, Counts, Counts, Any, Streams]:
    streams = Streams(mesh.url, options.max_tokens)
    await _run(streams, options.busy, 0, min(10.0, options.seconds), [], mesh)
    before = await _stable_counts(mesh, {})
    memory: list[Mapping[str, int]] = []
    highest = await _run(streams, options.busy, options.idle, options.seconds, memory, mesh)
    after = await _stable_counts(mesh, before)
    await streams.http.aclose()
    return before, highest, after, memory, streams


async def _run(
    streams: Streams, busy: int, idle: int, seconds: float, memory: list[Mapping[str, int]], mesh: LocalMesh
) -> Counts:
    """Holds ``busy`` and ``idle`` streams for ``seconds``; returns the highest counts, adds samples to ``memory``."""
    stop, opened, highest = asyncio.Event(), asyncio.Semaphore(0), Counts()
    async with asyncio.TaskGroup() as group:
        for _ in range(busy):
            group.create_task(streams.busy(stop))
        for _ in range(idle):
            group.create_task(streams.idle(opened, stop))
        for _ in range(idle):
            await opened.acquire()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(min(_SAMPLE_S, seconds))
            memory.append(leaks.memory(mesh))
            highest = leaks.highest(highest, await asyncio.to_thread(leaks.count, mesh))
        stop.set()
    return highest


async def _stable_counts(mesh: LocalMesh, bound: Counts) -> Counts:
    """The counts when they are stable and no higher than ``bound``, or after a time limit."""
    until, last, now = time.monotonic() + _SETTLE_S, Counts(), await asyncio.to_thread(leaks.count, mesh)
    while time.monotonic() < until and (now != last or leaks.growth(bound, now)):
        await asyncio.sleep(2)
        last, now = now, await asyncio.to_thread(leaks.count, mesh)
    return now


if __name__ == "__main__":
    sys.exit(main())
