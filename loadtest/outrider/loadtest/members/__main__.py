"""Messages of the registry by the number of members: ``python -m outrider.loadtest.members --members 1000``.

Members of all kinds, each with a connection of its own, join one nats-server. Its own counters give the messages and
bytes a second that members publish and that it delivers, while nothing changes. Then members die one after the other,
and a gateway that follows verifiers notices: ordinary ones, and the keeper of the verifiers. Exit code 1: a death was
noticed later than `NOTICED_S` seconds after it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvloop
from outrider.loadtest.members.simulated import KILL, name_of
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Bus
from outrider.mesh.registry import Registry, keeper_subject

NOTICED_S = 2.6
"""Most seconds until a death is noticed: the silence after which a member is gone, and two ticks."""
_SETTLE_S = 5.0
_DEATH_S = 30.0
_DEATHS = 5


class Traffic(msgspec.Struct, frozen=True):
    """Messages and bytes a second at the broker."""

    members: int
    published: float
    delivered: float
    published_bytes: float
    delivered_bytes: float

    def __str__(self) -> str:
        """One line for the terminal."""
        return (
            f"{self.members} members: {self.published:.0f} messages/s published ({self.published_bytes / 1e6:.2f} MB/s)"
            f", {self.delivered:.0f} delivered ({self.delivered_bytes / 1e6:.1f} MB/s)"
        )


def main() -> int:
    """Measures, prints a line a measurement and the bars, writes JSON; returns 1 if a bar was missed."""
    options = _options()
    traffic, deaths = uvloop.run(_measure(options))
    judged = [
        Bar(f"{NOTICED_S} s / death of {name} noticed", NOTICED_S / max(seconds, 1e-9), 1.0) for name, seconds in deaths
    ]
    bars.publish(options.out, judged, options=vars(options), traffic=traffic, deaths=deaths)
    return int(not all(bar.met for bar in judged))


async def _measure(options: argparse.Namespace) -> tuple[Traffic, list[tuple[str, float]]]:
    async with _broker() as (url, monitor), _members(url, options):
        await asyncio.sleep(_SETTLE_S)
        traffic = await _count(monitor, options)
        print(traffic, flush=True)
        return traffic, await _kill(url, options.members)


@asynccontextmanager
async def _broker() -> AsyncIterator[tuple[str, int]]:
    port, monitor = hold_port(), hold_port()
    server = Path(sys.executable).parent / "nats-server"
    options = ["-a", "127.0.0.1", "-p", str(port), "-m", str(monitor)]
    process = await asyncio.create_subprocess_exec(server, *options, stderr=asyncio.subprocess.DEVNULL)
    try:
        yield f"nats://127.0.0.1:{port}", monitor
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def _members(url: str, options: argparse.Namespace) -> AsyncIterator[None]:
    """The members, in ``options.processes`` processes, once all of them have joined."""
    share = -(-options.members // options.processes)
    parts = [(first, min(share, options.members - first)) for first in range(0, options.members, share)]
    command = [sys.executable, "-m", "outrider.loadtest.members.simulated", url]
    processes: list[asyncio.subprocess.Process] = []
    try:
        for first, count in parts:
            arguments = str(first), str(count)
            process = await asyncio.create_subprocess_exec(*command, *arguments, stdout=asyncio.subprocess.PIPE)
            processes.append(process)
            assert process.stdout is not None
            await process.stdout.readline()
        yield
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _count(monitor: int, options: argparse.Namespace) -> Traffic:
    before, began = await _counters(monitor), time.perf_counter()
    await asyncio.sleep(options.seconds)
    after, seconds = await _counters(monitor), time.perf_counter() - began
    names = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")
    return Traffic(options.members, *((after[name] - before[name]) / seconds for name in names))


async def _counters(monitor: int) -> dict[str, int]:
    def read() -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=10) as response:
            counters: dict[str, int] = json.load(response)
        return counters

    return await asyncio.to_thread(read)


async def _kill(url: str, members: int) -> list[tuple[str, float]]:
    """Seconds until a gateway notices deaths, by what died."""
    bus = Bus()
    await bus.connect(url, "watcher", wait_s=10)
    registry = Registry(bus, "gateway", "gateway-watcher", follows=("verifier",))
    await registry.start()
    await asyncio.sleep(_SETTLE_S)
    verifiers = [name for name in map(name_of, range(members)) if name.startswith("verifier")]
    deaths = [("a verifier", await _noticed(bus, registry, name)) for name in verifiers[-_DEATHS:]]
    if (keeper := await _keeper(bus)) is not None:
        deaths.append(("the keeper of the verifiers", await _noticed(bus, registry, keeper)))
    left = len(registry.members("verifier"))
    print(f"{len(verifiers) - len(deaths)} verifiers live, the gateway knows {left}", flush=True)
    registry.leave()
    await bus.close()
    return deaths


async def _noticed(bus: Bus, registry: Registry, name: str) -> float:
    began = time.perf_counter()
    bus.publish(KILL, name.encode())
    await registry.wait_for("verifier", lambda members: all(each.instance != name for each in members), _DEATH_S)
    seconds = time.perf_counter() - began
    print(f"the death of {name} was noticed after {seconds:.2f} s", flush=True)
    return seconds


async def _keeper(bus: Bus) -> str | None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    subscription = await bus.subscribe(keeper_subject("verifier"), lambda message: heard.put_nowait(message.data))
    try:
        async with asyncio.timeout(_SETTLE_S):
            name: str = msgspec.msgpack.decode(await heard.get())[0]
            return name
    except TimeoutError:
        return None
    finally:
        await subscription.unsubscribe()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.members", description=__doc__)
    parser.add_argument("--members", type=int, default=1000, help="simulated members")
    parser.add_argument("--processes", type=int, default=4, help="processes that they live in")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds for which messages are counted")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    if min(options.members, options.processes) < 1 or options.seconds <= 0:
        parser.error("--members and --processes must be at least 1, --seconds above 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
