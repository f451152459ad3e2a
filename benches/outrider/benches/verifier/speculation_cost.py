"""Measures what speculation costs an engine where it does not pay.

Run as `python -m outrider.benches.verifier.speculation_cost`.

Runs one engine for each mode in one process, without mesh and clients. All engines share the weights in memory, because
their place in memory can make steps a tenth slower. All engines answer the same prompts and take turns of a few steps,
so that other work on the machine affects all alike. A round ends when all have answered. Ratios compare the CPU and
wall-clock seconds of a round, as median and quartiles over the rounds. ``off`` is plain decoding; ``again`` repeats
``off`` and shows the error of the other ratios.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles

import msgspec
from outrider.engine.decode.engine import Engine
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation.drafters.drafter import traits_of
from outrider.engine.speculation.policy.plugins import installed
from outrider.engine.target import Target
from outrider.engine.text import Tokenizer
from outrider.training.pocket.corpus import gather, standard_library
from outrider.verifier.requests.conversion import frame
from outrider.wire.frames import encode_frame

SINGLE = tuple(name for name, plugin in installed().items() if traits_of(plugin).auto)
"""Modes of one drafter: those of ``auto``."""
MODES: dict[str, list[str]] = {"off": [], "again": [], **{name: [name] for name in SINGLE}, "on": list(SINGLE)}
"""Drafters of each mode."""
WORKLOADS = ("code", "edit")
"""Held-out code to continue, and code that is followed by the beginning of a copy of itself."""
_PROMPT = 256


class Case(msgspec.Struct, frozen=True):
    """A workload that runs in every mode."""

    workload: str
    temperature: float
    sequences: int

    def __str__(self) -> str:
        """Name of the case in tables."""
        return f"{self.workload}, T={self.temperature:g}, {self.sequences} sequences"


class RoundTime(msgspec.Struct):
    """Seconds of an engine's steps in one round: CPU time of all threads, and wall-clock time."""

    cpu: float = 0.0
    wall: float = 0.0


class ModeSpeed(msgspec.Struct, frozen=True):
    """Speed of a mode relative to plain decoding: lower quartile, median and upper quartile over the rounds."""

    case: Case
    mode: str
    cpu: list[float]
    wall: list[float]

    def __str__(self) -> str:
        """One line."""
        low, middle, high = self.cpu
        return f"{self.case!s:28} {self.mode:7} cpu {middle:5.3f} ({low:5.3f} to {high:5.3f})  wall {self.wall[1]:5.3f}"


class ModeEngine:
    """An engine of one mode."""

    def __init__(self, target: Target, drafters: Sequence[str]) -> None:
        self._engine = target.engine()
        self._speculation = Speculation(off=not drafters, drafters=tuple(drafters))
        self._names = itertools.count()

    def ask(self, case: Case, prompts: Sequence[list[int]], max_tokens: int) -> None:
        """Submits the prompts of a round."""
        for seed, prompt in enumerate(prompts):
            sampling, name = Sampling(temperature=case.temperature, seed=seed), str(next(self._names))
            self._engine.submit(Request(name, "tenant", prompt, sampling, max_tokens, speculation=self._speculation))

    def run(self, steps: int, times: RoundTime) -> bool:
        """Runs up to ``steps`` steps and adds their time to ``times``; whether the engine has more to do."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(steps):
            if not self._engine.busy:
                break
            for _, output in self._engine.step().outputs:
                encode_frame(frame(output, ""))
        times.cpu += time.process_time() - cpu
        times.wall += time.perf_counter() - wall
        return self._engine.busy

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self._engine


def one_round(
    engines: dict[str, ModeEngine], case: Case, prompts: Sequence[list[int]], max_tokens: int, steps: int
) -> dict[str, RoundTime]:
    """Answers ``prompts`` in all modes, a few steps of each mode at a time."""
    times = {mode: RoundTime() for mode in engines}
    for mode_engine in engines.values():
        mode_engine.ask(case, prompts, max_tokens)
    order = list(engines)
    while order:
        order = [mode for mode in order if engines[mode].run(steps, times[mode])]
        order = order[1:] + order[:1]
    return times


def compare(case: Case, rounds: Sequence[dict[str, RoundTime]]) -> Iterator[ModeSpeed]:
    """Compares each mode with plain decoding."""
    for mode in rounds[0]:
        cpu = [times["off"].cpu / times[mode].cpu for times in rounds]
        wall = [times["off"].wall / times[mode].wall for times in rounds]
        yield ModeSpeed(case, mode, quantiles(cpu, n=4), quantiles(wall, n=4))


def texts(tokenizer: Tokenizer) -> list[list[int]]:
    """Held-out code in pieces of a prompt's length, without repetition."""
    whole = [tokenizer.encode(piece.text) for piece in gather(standard_library()).heldout]
    return [list(text[at : at + _PROMPT]) for text in whole for at in range(0, len(text) - _PROMPT, _PROMPT)]


def prompt(workload: str, text: list[int]) -> list[int]:
    """A prompt of ``workload`` from ``text``."""
    return text if workload == "code" else text[: 3 * _PROMPT // 4] + text[: _PROMPT // 4]


def main() -> int:
    """Measures, prints a line for each mode of each case, and writes the figures to ``--out``."""
    options, results = _options(), list[ModeSpeed]()
    tokenizer, engines = make_engines(options.modes, options.threads)
    for case in itertools.starmap(Case, itertools.product(options.workloads, options.temperatures, options.sequences)):
        supply, rounds = itertools.cycle(texts(tokenizer)), []
        for _ in range(1 + options.rounds):
            prompts = [prompt(case.workload, text) for text in itertools.islice(supply, case.sequences)]
            rounds.append(one_round(engines, case, prompts, options.max_tokens, options.steps))
        results += compare(case, rounds[1:])
        print("\n".join(str(result) for result in results if result.case == case), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    return 0


def make_engines(modes: Sequence[str], threads: int) -> tuple[Tokenizer, dict[str, ModeEngine]]:
    """The tokenizer, and an engine of the shipped models for each mode; 0 ``threads`` for one thread a core."""
    first = Target.load(EngineSettings(drafters=[], threads=threads))
    model, tokenizer = first.runner.model, first.tokenizer
    targets = {mode: Target.over(model, tokenizer, first.directory, _settings(mode)) for mode in modes}
    return tokenizer, {mode: ModeEngine(target, MODES[mode]) for mode, target in targets.items()}


def _settings(mode: str) -> EngineSettings:
    return EngineSettings(drafters=MODES[mode])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.verifier.speculation_cost", description=__doc__)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--sequences", nargs="+", type=int, default=[1, 4, 8, 32])
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens an answer")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds; one more round runs first to warm up")
    parser.add_argument("--steps", type=int, default=8, help="steps of an engine in one turn")
    parser.add_argument("--threads", type=int, default=0, help="threads of the model; 0 for one thread a core")
    parser.add_argument("--out", type=Path, help="file for the figures")
    options = parser.parse_args()
    if "off" not in options.modes:
        parser.error("--modes must include off: the other modes are compared with it")
    if min(options.rounds - 1, options.steps, options.max_tokens - 1, *options.sequences) < 1 or options.threads < 0:
        parser.error("--rounds and --max-tokens are at least 2, --steps and --sequences 1, --threads 0")
    return options


if __name__ == "__main__":
    sys.exit(main())
