"""Load and faults that make alerts fire: a flood of requests, verifiers that die, a broker that dies."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outrider.loadtest.load import crowd
from outrider.loadtest.load.client import RequestError, complete
from outrider.loadtest.load.crowd import Crowd
from outrider.loadtest.load.prompts import held_out
from outrider.loadtest.observe.prometheus import Prometheus
from outrider.loadtest.observe.watched_mesh import VERIFIERS, WatchedMesh
from outrider.mesh.access import Access, access_to

_MOST_S = 300.0
"""Longest wait for an alert."""
_LOOK_S = 2.0
_PAUSE_S = 20.0
"""Two scrapes."""


async def make(mesh: WatchedMesh, prometheus: Prometheus, quiet_s: float) -> dict[str, float]:
    """Seconds from each fault until its alert fired; infinite where it did not fire in time.

    Tenants send requests all the time; the first ``quiet_s`` seconds are without a fault.
    """
    async with _load(mesh):
        await asyncio.sleep(quiet_s)
        async with crowd.running(Crowd("flood", mesh.keys["flood"], [mesh.url]), clients=24, max_tokens=512):
            seconds = {"OutriderQueueWaitHigh": await _firing(prometheus, "OutriderQueueWaitHigh")}
            mesh.site.kill(VERIFIERS[0])
            await asyncio.sleep(_PAUSE_S)
        mesh.site.kill(VERIFIERS[1])
        seconds["OutriderNoVerifierReady"] = await _firing(prometheus, "OutriderNoVerifierReady")
        for name in VERIFIERS:
            await mesh.start_verifier(name)
        await asyncio.sleep(_PAUSE_S)
        os.kill(mesh.site.pids["nats"], signal.SIGKILL)
        seconds["OutriderBrokerDisconnected"] = await _firing(prometheus, "OutriderBrokerDisconnected")
    return seconds


@asynccontextmanager
async def _load(mesh: WatchedMesh) -> AsyncIterator[None]:
    """Two tenants send code, one of them more than its limit allows, and somebody repeats prompts."""
    apple, pear = (Crowd(name, mesh.keys[name], [mesh.url]) for name in ("apple", "pear"))
    repeating = asyncio.create_task(_repeat(access_to(mesh.url, key=mesh.keys["apple"])))
    try:
        async with crowd.running(apple, clients=2, max_tokens=96), crowd.running(pear, clients=1, max_tokens=32):
            yield
    finally:
        repeating.cancel()
        await asyncio.wait([repeating])


async def _repeat(access: Access) -> None:
    """Sends a few prompts over and over, whose pages verifiers and KV caches then have."""
    for prompt in itertools.cycle(held_out()[:3]):
        try:
            await complete(access, {"prompt": prompt, "max_tokens": 32})
        except RequestError:
            await asyncio.sleep(1)


async def _firing(prometheus: Prometheus, alert: str) -> float:
    """Seconds until Prometheus says that an alert fires, which it must not say before."""
    if await _fires(prometheus, alert):
        raise SystemExit(f"{alert} fires before its fault")
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < _MOST_S:
        if await _fires(prometheus, alert):
            return seconds
        await asyncio.sleep(_LOOK_S)
    return float("inf")


async def _fires(prometheus: Prometheus, alert: str) -> bool:
    return any(each.labels["alertname"] == alert and each.state == "firing" for each in await prometheus.alerts())
