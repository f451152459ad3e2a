"""Continuous against static batching on answers of mixed lengths: `python -m outrider.loadtest batching`.

Each pass starts a mesh of the shipped models with one way of batching and keeps four requests for every slot in flight:
mostly short answers, and one long one among every so many, in random order. What counts are the steps while requests
wait, by the verifier's own counters; the end, when slots run empty in either way, is left out. Nothing is guessed.
In a static batch, sequences that have ended take no rows, so that this baseline is quicker than one that pads.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import httpx
import msgspec
from outrider.loadtest.meshes import local_mesh
from outrider.loadtest.meshes.local_mesh import LocalMesh
from outrider.loadtest.report.report import machine

MODES = {"continuous": None, "static": local_mesh.STATIC}
"""Programs of the verifier, where it is not the one that serves."""
_IN_FLIGHT = 4
_PROMPT_ROWS = 256
_VOCABULARY = 256
"""Prompts are ids below it."""
COUNTERS = ("crowded_tokens", "crowded_seconds", "crowded_steps", "crowded_sequences", "preemptions")
"""The verifier's counters that a pass is made of."""


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
                passes.append(one_pass(mix, mode, repeat, options.determinism))
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


def counted(mode: str, slots: int, counters: Mapping[str, float]) -> Pass:
    """A pass by the verifier's counters, by their names without prefix; `SystemExit` where no request ever waited."""
    if not counters["crowded_steps"]:
        raise SystemExit(f"no requests had to wait: too few for {slots} slots")
    seconds, tokens = counters["crowded_seconds"], counters["crowded_tokens"]
    use = counters["crowded_sequences"] / (counters["crowded_steps"] * slots)
    return Pass(mode, tokens / seconds, use, int(tokens), seconds, int(counters["preemptions"]))


def one_pass(mix: Mix, mode: str, seed: int, determinism: str) -> Pass:
    """Asks a mesh of its own, which batches as ``mode`` says."""
    settings = {
        "verifier.determinism": determinism,
        "verifier.max_running": str(mix.slots),
        "verifier.max_waiting": str(_IN_FLIGHT * mix.slots),
        "verifier.max_rows": str(mix.slots + _PROMPT_ROWS),
        "gateway.silence_s": "60",
    }
    with local_mesh.running(settings, proposers=0, program=MODES[mode]) as mesh:
        asyncio.run(_load(mix, mesh, seed))
        names = {name: f"outrider_verifier_{name}_total" for name in COUNTERS}
        return counted(mode, mix.slots, {name: mesh.metric("verifier", full) or 0.0 for name, full in names.items()})


async def _load(mix: Mix, mesh: LocalMesh, seed: int) -> None:
    dice, left = random.Random(seed), iter(mix.lengths(seed))
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=mesh.url, timeout=3600, limits=limits, trust_env=False) as client:

        async def keep_asking() -> None:
            for length in left:
                prompt = [dice.randrange(3, _VOCABULARY) for _ in range(mix.prompt)]
                body = {"prompt": prompt, "max_tokens": length, "ignore_eos": True, "speculation": "off"}
                (await client.post("/v1/completions", json=body)).raise_for_status()

        await asyncio.gather(*(keep_asking() for _ in range(_IN_FLIGHT * mix.slots)))


def _line(each: Pass) -> str:
    return (
        f"{each.mode}: {each.tokens} tokens in {each.seconds:.1f} s, {each.tokens_per_s:.0f} tokens/s, "
        f"{each.batch_use:.1%} of the slots in use, {each.preemptions} preemptions"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.loadtest batching", description=__doc__)
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
