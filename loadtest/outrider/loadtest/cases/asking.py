"""Asks a mesh, whole or in streams, and kills a verifier in the middle of streams."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
from outrider.loadtest.cases.bodies import PATHS
from outrider.loadtest.cases.views import View, streamed_view, view
from outrider.measure.local_mesh import LocalMesh

_FEW = 24
"""Events of a stream, at most, before a verifier is killed."""
_TIMEOUT_S, _BACK_S = 300.0, 120.0


class Refused(Exception):
    """A request got no answer; the message is the mesh's."""


async def whole(client: httpx.AsyncClient, api: str, body: dict[str, Any]) -> View:
    """The answer to ``body``, unstreamed; raises `Refused`."""
    answer = await client.post(PATHS[api], json=body)
    if not answer.is_success:
        raise Refused(f"{answer.status_code}: {answer.text}")
    return view(api, answer.json())


async def streamed(
    client: httpx.AsyncClient, api: str, body: dict[str, Any], on_event: Callable[[int], None] | None = None
) -> View:
    """The answer to ``body``, streamed; ``on_event`` gets the number of events so far. Raises `Refused`."""
    more = {"stream_options": {"include_usage": True}} if api == "chat" else {}
    events: list[dict[str, Any]] = []
    async with client.stream("POST", PATHS[api], json=body | {"stream": True} | more) as answer:
        if not answer.is_success:
            raise Refused(f"{answer.status_code}: {(await answer.aread()).decode()}")
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                events.append(msgspec.json.decode(line[6:]))
                if on_event is not None:
                    on_event(len(events))
    if "error" in events[-1] or events[-1].get("type") == "error":
        raise Refused(f"the stream ended with {events[-1]}")
    return streamed_view(api, events)


class Killer:
    """Kills the verifier of a mesh that works, while a batch of streams runs; the mesh starts it again."""

    def __init__(self, mesh: LocalMesh, seed: int) -> None:
        self._mesh, self._draw = mesh, random.Random(seed)
        self.kills, self.disturbed = 0, 0

    async def run(self, streams: Sequence[Callable[[Callable[[int], None]], Any]]) -> list[Any]:
        """The results, or exceptions, of ``streams``, which tell the number of their events to what they are called
        with: one of them, drawn at random, has the verifier killed at one of its first events."""
        await self._both()
        victim, event = self._draw.randrange(len(streams)), self._draw.randint(2, _FEW)
        before, counts = _cpu(self._mesh), [0] * len(streams)
        running = set(range(len(streams)))

        def kill() -> None:
            nonlocal before
            if before:
                after = _cpu(self._mesh)
                busy = max(before.keys() & after.keys(), key=lambda pid: after[pid] - before[pid])
                os.kill(busy, signal.SIGKILL)
                self.kills += 1
                self.disturbed += sum(counts[place] > 0 for place in running)
                before = {}

        async def one(place: int) -> Any:
            def on_event(count: int) -> None:
                counts[place] = count
                if place == victim and count >= event:
                    kill()

            try:
                return await streams[place](on_event)
            finally:
                if place == victim:
                    kill()
                running.discard(place)

        return await asyncio.gather(*map(one, range(len(streams))), return_exceptions=True)

    async def _both(self) -> None:
        """Returns when every verifier answers; raises `TimeoutError`."""
        async with asyncio.timeout(_BACK_S), httpx.AsyncClient(trust_env=False) as client:
            while True:
                try:
                    for url in self._mesh.metrics_urls(["verifier"]):
                        await client.get(url)
                except httpx.TransportError:
                    await asyncio.sleep(0.2)
                else:
                    return


def client_of(mesh: LocalMesh) -> httpx.AsyncClient:
    """A client of the mesh's gateway."""
    return httpx.AsyncClient(base_url=mesh.url, timeout=_TIMEOUT_S, trust_env=False)


def _cpu(mesh: LocalMesh) -> dict[int, int]:
    """CPU time of each verifier by process id, in ticks of the clock."""
    stats = {pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in mesh.pids("verifier")}
    return {pid: int(fields[11]) + int(fields[12]) for pid, fields in stats.items()}
