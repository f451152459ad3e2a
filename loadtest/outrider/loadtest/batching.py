"""Continuous against static batching on answers of mixed lengths: `python -m outrider.loadtest.batching`.

Each pass starts a mesh of the shipped models with one way of batching and keeps four requests for every slot in flight:
mostly short answers, and one long one among every so many, in random order. What counts is the time in which requests
wait, by the verifier's own counters; the end, when slots run empty in either way, is left out. Nothing is guessed.
In a static batch, sequences that have ended take no rows, so that this baseline is quicker than one that pads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import httpx
import msgspec
from outrider.loadtest.local_mesh import LocalMesh, running
from outrider.loadtest.report import machine

MODES = ("continuous", "static")
_IN_FLIGHT = 4
_POLL_S = 0.1
_PROMPT_ROWS = 256
_VOCABULARY = 256
"""Prompts are ids below it."""
_WAITING = "outrider_verifier_waiting_requests"
_COUNTERS = ("tokens", "crowded_steps", "crowded_sequences", "preemptions")


class Mix(msgspec.Struct, frozen=True):
    """What is asked for: answers' lengths in tokens, one long one among ``among``; prompts of ``prompt`` tokens."""

    slots: int
    requests: int
    short: int
    long: int
    among: int
    prompt: int

    def lengths(self, seed: int) -> list[int]:
        """Length of each answer, the long ones at random places."""
        long = self.requests // self.among
        lengths = [self.long] * long + [self.short] * (self.requests - long)
        random.Random(seed).shuffle(lengths)
        return lengths


class Reading(msgspec.Struct, frozen=True):
    """The verifier's counters at a time (seconds)."""

    at: float
    tokens: float
    crowded_steps: float
    crowded_sequences: float
    preemptions: float


class Pass(msgspec.Struct, frozen=True):
    """One run: ``batch_use`` is the mean share of the slots that ran while requests waited."""

    mode: str
    tokens_per_s: float
    batch_use: float
    tokens: int
    seconds: float
    preemptions: int


class Report(msgspec.Struct, frozen=True):
    """All passes, and the medians of both ways with their ratio."""

    machine: dict[str, str]
    mix: Mix
    determinism: str
    passes: list[Pass]
    tokens_per_s: dict[str, float]
    batch_use: dict[str, float]
    ratio: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs both ways in turns and prints what came of it; 1 if requests failed."""
    options = _options(arguments)
    mix = Mix(options.slots, options.requests, options.short, options.long, options.among, options.prompt)
    passes = []
    for repeat in range(options.repeats):
        for mode in MODES if repeat % 2 == 0 else reversed(MODES):
            try:
                passes.append(_pass(mix, mode, repeat, options.determinism))
            except httpx.HTTPError as error:
                print(f"a request failed: {error}", file=sys.stderr)
                return 1
            print(_line(passes[-1]), flush=True)
    report = summarize(mix, options.determinism, passes)
    print(shown(report))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return 0


def summarize(mix: Mix, determinism: str, passes: list[Pass]) -> Report:
    """The medians of ``passes``, which hold both ways."""
    speed = {mode: median(each.tokens_per_s for each in passes if each.mode == mode) for mode in MODES}
    use = {mode: median(each.batch_use for each in passes if each.mode == mode) for mode in MODES}
    return Report(machine(), mix, determinism, passes, speed, use, speed["continuous"] / speed["static"])


def shown(report: Report) -> str:
    """The report in a few lines."""
    mix, count = report.mix, len(report.passes) // len(MODES)
    speed = ", ".join(f"{mode} {report.tokens_per_s[mode]:.0f} tokens/s" for mode in MODES)
    use = ", ".join(f"{mode} {report.batch_use[mode]:.1%}" for mode in MODES)
    return (
        f"{', '.join(report.machine.values())}\n"
        f"{mix.slots} slots, {mix.requests} requests, prompts of {mix.prompt} tokens, answers of {mix.short}, "
        f"one in {mix.among} of {mix.long}; {report.determinism}; median of {count}\n"
        f"{speed}: {report.ratio:.2f} times as many\nslots in use while requests wait: {use}"
    )


def between(mode: str, slots: int, first: Reading, last: Reading) -> Pass:
    """What happened between two readings."""
    seconds, tokens = last.at - first.at, last.tokens - first.tokens
    steps = last.crowded_steps - first.crowded_steps
    use = (last.crowded_sequences - first.crowded_sequences) / max(steps * slots, 1)
    return Pass(mode, tokens / seconds, use, int(tokens), seconds, int(last.preemptions - first.preemptions))


def _pass(mix: Mix, mode: str, seed: int, determinism: str) -> Pass:
    settings = {
        "verifier.batching": mode,
        "verifier.determinism": determinism,
        "verifier.max_running": str(mix.slots),
        "verifier.max_waiting": str(_IN_FLIGHT * mix.slots),
        "verifier.max_rows": str(mix.slots + _PROMPT_ROWS),
        "gateway.silence_s": "60",
    }
    with running(settings, proposers=0) as mesh:
        readings = asyncio.run(_load(mix, mesh, seed))
    if len(readings) < 2:
        raise SystemExit(f"no requests had to wait: --requests {mix.requests} are too few for {mix.slots} slots")
    return between(mode, mix.slots, readings[0], readings[-1])


async def _load(mix: Mix, mesh: LocalMesh, seed: int) -> list[Reading]:
    """Readings while requests waited."""
    dice, left = random.Random(seed), iter(mix.lengths(seed))
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=mesh.url, timeout=3600, limits=limits, trust_env=False) as client:

        async def keep_asking() -> None:
            for length in left:
                prompt = [dice.randrange(3, _VOCABULARY) for _ in range(mix.prompt)]
                body = {"prompt": prompt, "max_tokens": length, "ignore_eos": True, "speculation": "off"}
                (await client.post("/v1/completions", json=body)).raise_for_status()

        clients = asyncio.gather(*(keep_asking() for _ in range(_IN_FLIGHT * mix.slots)))
        readings = []
        while not clients.done():
            if await asyncio.to_thread(mesh.metric, "verifier", _WAITING):
                readings.append(await asyncio.to_thread(_read, mesh))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(clients), _POLL_S)
        await clients
    return readings


def _read(mesh: LocalMesh) -> Reading:
    at = time.perf_counter()
    return Reading(at, *(mesh.metric("verifier", f"outrider_verifier_{name}_total") or 0.0 for name in _COUNTERS))


def _line(each: Pass) -> str:
    return (
        f"{each.mode}: {each.tokens} tokens in {each.seconds:.1f} s, {each.tokens_per_s:.0f} tokens/s, "
        f"{each.batch_use:.1%} of the slots in use, {each.preemptions} preemptions"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest.batching", description=__doc__)
    parser.add_argument("--slots", type=int, default=32, help="sequences in a step")
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--short", type=int, default=8, help="tokens of a short answer")
    parser.add_argument("--long", type=int, default=1024, help="tokens of a long answer")
    parser.add_argument("--among", type=int, default=32, help="one of so many answers is long")
    parser.add_argument("--prompt", type=int, default=4, help="tokens of a prompt")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--determinism", choices=["strict", "fast"], default="strict")
    parser.add_argument("--out", type=Path, default=None, help="JSON file for all passes")
    options = parser.parse_args(arguments)
    for name in ("slots", "requests", "short", "long", "among", "prompt", "repeats"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
