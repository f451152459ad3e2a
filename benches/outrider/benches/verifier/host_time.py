"""Measures what a step costs the engine's own thread, without the model: a GPU has nothing to do for that time.

Run as `python -m outrider.benches.verifier.host_time`.

The model's passes and logits are free, and logits of a few ids make the draw nearly free. ``plain`` steps have no
guesses; with ``ngram``, every guess of the drafter is right. Two engines alike take turns of a few steps: the second is
the control.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from statistics import median, quantiles
from typing import Any

import torch
from outrider.engine.decode.engine import Engine
from outrider.engine.models.llama import LlamaModel
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation.policy.drafter_policy import AskAlways
from outrider.engine.target import Parts, Target
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.verifier.tracing.step_telemetry import StepTelemetry
from torch import Tensor

_MODES: dict[str, list[str]] = {"plain": [], "ngram": ["ngram"]}
_PARTS = ("plan", "guesses", "batch", "draw", "commit", "rest")
_PROMPT, _MOST_ROWS, _COLLECT_AFTER = 32, 1024, 10_000
"""A verifier collects garbage as rarely."""
_ALWAYS = Parts(policy=AskAlways)
_SETTINGS = EngineSettings(
    max_running=128, prefill_rows=512, max_rows=640, max_guesses=256, pages=4096, drafters=[], threads=1
)
"""Sizes of steps on a GPU."""


class FreeModel(LlamaModel):
    """A loaded model whose every row says ``token``, at once."""

    def __init__(self, model: LlamaModel, token: int) -> None:
        self.__dict__.update(model.__dict__)
        self._hidden = torch.zeros(_MOST_ROWS, 1)
        self._logits = torch.zeros(_MOST_ROWS, token + 1)
        self._logits[:, token] = 100.0

    def forward(
        self, ids: Tensor, batch: RaggedBatch, pool: KvPool, layers: Sequence[int] = (), states: Tensor | None = None
    ) -> Tensor:
        """Makes the tables that a pass needs, and runs nothing."""
        assert len(batch.positions) == len(batch.slots) == len(ids)
        return self._hidden[: len(ids)]

    def logits(self, hidden: Tensor) -> Tensor:
        """The same for every row."""
        return self._logits[: len(hidden)]


class Watch:
    """An engine whose steps are measured by part."""

    def __init__(self, target: Target, streams: int, most: int) -> None:
        self._inside = dict.fromkeys(_PARTS, 0.0)
        self._time(target.scheduler, "plan", "plan")
        for owner, call in ((target.guessing, "draft"), (target.guessing, "buy"), (target.scheduler, "fill")):
            self._time(owner, call, "guesses")
        self._time(target.runner, "run", "run")
        self._target, self._engine = target, target.engine()
        speculation = Speculation(off=not target.settings.drafters)
        for number in range(streams):
            prompt = [(7 * number + place) % 4096 for place in range(_PROMPT)]
            sampling = Sampling(temperature=1.0, seed=number)
            self._engine.submit(Request(str(number), "tenant", prompt, sampling, most, speculation=speculation))

    def _time(self, owner: Any, call: str, part: str) -> None:
        """Adds the seconds of an object's calls to ``part``."""
        inner: Callable[..., Any] = getattr(owner, call)

        @wraps(inner)
        def timed(*given: Any) -> Any:
            began = time.perf_counter()
            try:
                return inner(*given)
            finally:
                self._inside[part] = self._inside.get(part, 0.0) + time.perf_counter() - began

        setattr(owner, call, timed)

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self._engine

    def step(self) -> list[float]:
        """Runs a step; returns its seconds by part, and last those of the whole."""
        times, tally = self._target.runner.times, self._engine.tally
        self._inside = dict.fromkeys(self._inside, 0.0)
        forward, sample, run = times.forward_s, times.sample_s, tally.run_s
        began = time.perf_counter()
        self._engine.step()
        whole, inside = time.perf_counter() - began, self._inside
        inside["batch"], inside["draw"] = times.forward_s - forward, times.sample_s - sample
        inside["commit"] = tally.run_s - run - inside["run"]
        inside["rest"] = whole - sum(inside[part] for part in _PARTS[:-1])
        return [inside[part] for part in _PARTS] + [whole]


def measure(target: Callable[[], Target], streams: int, steps: int, turn: int) -> list[list[list[float]]]:
    """Seconds of each step by part, of two engines that take turns; all streams decode in each step."""
    most = (steps + turn + 8) * (1 if not target().settings.drafters else 32)
    watches = [Watch(target(), streams, most) for _ in range(2)]
    for watch in watches:
        while watch.engine.tally.steps < 8 or any(s.pending > 1 for s in watch.engine.scheduler.running):
            watch.step()
    taken: list[list[list[float]]] = [[], []]
    for _ in range(-(-steps // turn)):
        for watch, own in zip(watches, taken, strict=True):
            own += [watch.step() for _ in range(turn)]
    assert all(watch.engine.load == streams for watch in watches), "an answer ended before the measurement did"
    return taken


def describe(taken: Sequence[Sequence[Sequence[float]]]) -> str:
    """Milliseconds: median and 10th percentile of the whole, those of the control, and the parts' 10th percentiles."""
    columns = [[[1e3 * seconds for seconds in part] for part in zip(*own, strict=True)] for own in taken]
    tenths = [[quantiles(part, n=10)[0] for part in own] for own in columns]
    whole = " ".join(f"{median(own[-1]):8.3f} {tenth[-1]:7.3f}" for own, tenth in zip(columns, tenths, strict=True))
    return f"{whole}  " + " ".join(f"{part:7.3f}" for part in tenths[0][:-1])


def main() -> int:
    """Prints a line for each mode and number of streams."""
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.verifier.host_time", description=__doc__)
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8, 64, 128])
    parser.add_argument("--modes", nargs="+", choices=list(_MODES), default=list(_MODES))
    parser.add_argument("--steps", type=int, default=200, help="steps of each engine")
    parser.add_argument("--turn", type=int, default=10, help="steps of an engine in one turn")
    options = parser.parse_args()
    first = Target.load(_SETTINGS)
    model = FreeModel(first.runner.model, first.tokenizer.encode("!")[0])
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    print("ms a step: streams   median    10th, control: median 10th; 10th percentiles of", *_PARTS)
    for mode in options.modes:
        own = replace(_SETTINGS, drafters=_MODES[mode])
        for streams in options.streams:
            taken = measure(
                partial(Target.over, model, first.tokenizer, first.directory, own, _ALWAYS, StepTelemetry()),
                streams,
                options.steps,
                options.turn,
            )
            print(f"{mode:6} {streams:11} {describe(taken)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
