"""Continuous against static batching on answers of mixed lengths: `python -m outrider.loadtest batching`.

Each pass starts a mesh of the shipped models with one way of batching and keeps four requests for every slot in flight:
mostly short answers and a few long ones, in random order, without speculation. Figures are of steps while requests
wait, by the verifier's counters; the end of a pass, when slots run empty, is left out. In a static batch, sequences
that have ended take no rows, so this baseline is faster than one that pads.
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
from outrider.loadtest.report.bench_report import machine

MODES = {"continuous": None, "static": local_mesh.STATIC}
"""Programs of the verifier, where it is not the one that serves."""
_IN_FLIGHT = 4
_PROMPT_ROWS = 256
_VOCABULARY = 256
"""Prompts are random ids below this bound."""
COUNTERS = ("crowded_tokens", "crowded_seconds", "crowded_steps", "crowded_sequences", "preemptions")
"""Counters of the verifier that a pass compares."""


class Mix(msgspec.Struct, frozen=True):
    """The requests: one answer among ``among`` has ``long`` tokens, the others ``short``; prompts have ``prompt``."""

    slots: int
    requests: int
    short: int
    long: int
    among: int
    prompt: int

    def lengths(self, seed: int) -> list[int]:
        """Tokens of each answer; long answers stand at random places."""
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
    """Runs both ways in turns and prints the report; returns 1 if a request failed."""
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
    print(report_text(report))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return 0


def summarize(mix: Mix, determinism: str, passes: list[Pass]) -> Report:
    """The report of ``passes`` of both ways, with their medians."""
    speed = {mode: median(pass_.tokens_per_s for pass_ in passes if pass_.mode == mode) for mode in MODES}
    use = {mode: median(pass_.batch_use for pass_ in passes if pass_.mode == mode) for mode in MODES}
    return Report(machine(), mix, determinism, passes, speed, use, speed["continuous"] / speed["static"])


def report_text(report: Report) -> str:
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


def pass_from_counters(mode: str, slots: int, counters: Mapping[str, float]) -> Pass:
    """A pass from the verifier's counters, by name without prefix; `SystemExit` if no request ever waited."""
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
        return pass_from_counters(
            mode, mix.slots, {name: mesh.metric("verifier", full) or 0.0 for name, full in names.items()}
        )


async def _load(mix: Mix, mesh: LocalMesh, seed: int) -> None:
    draw, lengths = random.Random(seed), iter(mix.lengths(seed))
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=mesh.url, timeout=3600, limits=limits, trust_env=False) as client:

        async def keep_asking() -> None:
            for length in lengths:
                prompt = [draw.randrange(3, _VOCABULARY) for _ in range(mix.prompt)]
                body = {"prompt": prompt, "max_tokens": length, "ignore_eos": True, "speculation": "off"}
                (await client.post("/v1/completions", json=body)).raise_for_status()

        await asyncio.gather(*(keep_asking() for _ in range(_IN_FLIGHT * mix.slots)))


def _line(pass_: Pass) -> str:
    return (
        f"{pass_.mode}: {pass_.tokens} tokens in {pass_.seconds:.1f} s, {pass_.tokens_per_s:.0f} tokens/s, "
        f"{pass_.batch_use:.1%} of the slots in use, {pass_.preemptions} preemptions"
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
