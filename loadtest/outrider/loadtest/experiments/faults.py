"""A proposer that freezes, thaws, is killed and comes back under load: `python -m outrider.loadtest faults`.

Clients stream without a pause while the only proposer gets SIGSTOP, SIGCONT and SIGKILL (the mesh restarts it).
Every answer must have the same tokens as without speculation, and the speed must soon recover: without a proposer to
that of local drafters alone (or of all drafters, if that is less), with a proposer to that of all drafters.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from outrider.loadtest.load import prompts
from outrider.loadtest.load.answers import Answer, agrees
from outrider.loadtest.load.client import read_events
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.meshes.local_mesh import LocalMesh
from outrider.loadtest.report import bars
from outrider.loadtest.report.bars import Bar

RECOVERY_S = 5.0
"""Seconds within which the speed has to recover."""
RECOVERED_SHARE = 0.9
"""Share of the former speed that counts as recovered."""
WINDOW_S = 2.0
"""Seconds over which a speed is averaged."""
_STEP_S = 0.1
_PROMPTS = 24
_LOCAL_DRAFTERS = ["ngram"]
"""Local drafters; none that remembers answers, since questions repeat."""


class Phase(msgspec.Struct, frozen=True):
    """A phase after the fault ``name``; its speed has to reach that of the slowest phase of ``as_in``.

    Times are of `time.perf_counter`.
    """

    name: str
    began: float
    ended: float
    as_in: tuple[str, ...] = ()


class Load:
    """Clients that send the same questions over and over."""

    def __init__(self, url: str, bodies: list[dict[str, Any]]) -> None:
        self._url, self._bodies = url, bodies
        self.arrived: list[tuple[float, int]] = []
        self.answers = self.different = 0
        self.expected: dict[int, Answer] = {}

    async def learn(self, concurrency: int) -> None:
        """Reads every answer once without speculation; later answers must be the same."""
        remaining = iter(range(len(self._bodies)))

        async def client() -> None:
            for number in remaining:
                self.expected[number] = await self._ask(number, "off")

        await asyncio.gather(*(client() for _ in range(concurrency)))

    async def run(self, concurrency: int, speculation: Any, stop: asyncio.Event) -> None:
        """Sends questions until ``stop`` is set; returns when the last answers have arrived."""
        numbers = itertools.cycle(range(len(self._bodies)))

        async def client() -> None:
            while not stop.is_set():
                number = next(numbers)
                answer = await self._ask(number, speculation)
                self.answers += 1
                self.different += not (answer.whole and agrees(answer, self.expected[number]))

        await asyncio.gather(*(client() for _ in range(concurrency)))

    async def _ask(self, number: int, speculation: Any) -> Answer:
        answer = Answer()
        async with aclosing(read_events(self._url, self._bodies[number] | {"speculation": speculation})) as stream:
            async for data in stream:
                before = answer.tokens
                answer.add(msgspec.json.decode(data))
                self.arrived.append((time.perf_counter(), answer.tokens - before))
        return answer

    def speed(self, began: float, ended: float) -> float:
        """Tokens a second that arrived from ``began`` to ``ended``."""
        return sum(tokens for at, tokens in self.arrived if began <= at < ended) / (ended - began)


def main() -> int:
    """Disturbs a mesh, prints speeds and recoveries; returns 1 if an answer differed."""
    options = _options()
    settings = {"verifier.drafters": ",".join(_LOCAL_DRAFTERS)}
    with local_mesh.running(settings, model=options.model, draft=options.draft) as mesh:
        load, phases = uvloop.run(_disturb(options, mesh))
    for phase in phases:
        print(f"{phase.name}: {load.speed(phase.began, phase.ended):.0f} tokens/s over {options.seconds:g} s")
    recoveries = {phase.name: recovery(load, phase, phases) for phase in phases if phase.as_in}
    for name, seconds in recoveries.items():
        print(f"after {name}, the speed was back after {seconds:.1f} s")
    judged = [
        Bar(f"{name}: seconds to spare of {RECOVERY_S:g}", RECOVERY_S - seconds, 0)
        for name, seconds in recoveries.items()
    ]
    judged.append(
        Bar(f"answers of {load.answers} that are as without speculation", load.answers - load.different, load.answers)
    )
    series = [load.speed(at / 2, at / 2 + 0.5) for at in range(int(2 * phases[0].began), int(2 * phases[-1].ended))]
    bars.publish(options.out, judged, options=vars(options), phases=phases, recovery_s=recoveries, half_seconds=series)
    return int(load.different > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest faults", description=__doc__)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens a request")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of each phase")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    local_mesh.add_models(parser)
    options = parser.parse_args()
    if (options.model is None) != (options.draft is None):
        parser.error("--model and --draft go together: the experiment disturbs the draft model's proposer")
    if min(options.concurrency, options.max_tokens) < 1 or options.seconds < RECOVERY_S + WINDOW_S:
        parser.error(f"numbers must be at least 1, --seconds at least {RECOVERY_S + WINDOW_S:g}")
    return options


async def _disturb(options: argparse.Namespace, mesh: LocalMesh) -> tuple[Load, list[Phase]]:
    load = Load(mesh.url, _bodies(options.max_tokens))
    await load.learn(options.concurrency)
    phases = []
    for speculation, names in (({"drafters": _LOCAL_DRAFTERS}, ["alone"]), ({}, ["together", *_FAULTS])):
        stop = asyncio.Event()
        running = asyncio.create_task(load.run(options.concurrency, speculation, stop))
        await asyncio.sleep(WINDOW_S)
        for name in names:
            number, as_in = _FAULTS.get(name, (None, ()))
            if number is not None:
                os.kill(mesh.pids("proposer")[0], number)
            began = time.perf_counter()
            await asyncio.sleep(options.seconds)
            phases.append(Phase(name, began, time.perf_counter(), as_in))
        stop.set()
        await running
    return load, phases


_FAULTS: dict[str, tuple[signal.Signals, tuple[str, ...]]] = {
    "SIGSTOP": (signal.SIGSTOP, ("alone", "together")),
    "SIGCONT": (signal.SIGCONT, ("together",)),
    "SIGKILL and the restart": (signal.SIGKILL, ("together",)),
}
"""Signals to the proposer, each with the phases whose speed has to follow."""


def recovery(load: Load, phase: Phase, phases: list[Phase]) -> float:
    """Seconds from the phase's beginning to the first window with the former speed; infinite without one."""
    least_speed = RECOVERED_SHARE * min(
        load.speed(other.began, other.ended) for other in phases if other.name in phase.as_in
    )
    starts = int((phase.ended - phase.began - WINDOW_S) / _STEP_S)
    after = (_STEP_S * step for step in range(starts + 1))
    back = (s for s in after if load.speed(phase.began + s, phase.began + s + WINDOW_S) >= least_speed)
    return next(back, float("inf"))


def _bodies(max_tokens: int) -> list[dict[str, Any]]:
    return [
        {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": float(number % 2),
            "seed": number,
            "ignore_eos": True,
            "return_tokens": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for number, prompt in enumerate(prompts.held_out()[:_PROMPTS])
    ]


if __name__ == "__main__":
    sys.exit(main())
