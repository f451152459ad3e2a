"""Measures what a step costs the engine's own thread, without the model: a GPU has nothing to do for that time.

Run as `python -m outrider.benches.verifier.host_time`.

The model's passes and logits are free, and logits of a few ids make the draw nearly free. ``plain`` steps have no
guesses; with ``ngram``, each stream has one, which is right. Two engines alike take turns of a few steps: the second is
the control.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median, quantiles
from typing import Any

import torch
from outrider.engine import store
from outrider.engine.models.llama import LlamaModel
from outrider.engine.requests.parameters import Speculation
from outrider.engine.requests.sequence import Request
from outrider.engine.sampling import Sampling
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation.policy.drafter_policy import AskAlways
from outrider.engine.target import Parts, Target
from outrider.engine.text import Tokenizer
from outrider.kernels.batch import RaggedBatch
from outrider.kernels.pool import KvPool
from outrider.verifier.tracing.step_telemetry import StepTelemetry
from torch import Tensor

_MODES: dict[str, list[str]] = {"plain": [], "ngram": ["ngram"]}
_PARTS = ("plan", "guesses", "batch", "draw", "commit", "rest")
_PROMPT, _FIRST, _MOST_ROWS, _COLLECT_AFTER = 32, 8, 1024, 10_000
"""A verifier collects garbage as rarely."""
_ALWAYS = Parts(policy=AskAlways)
_SETTINGS = EngineSettings(
    max_running=128, prefill_rows=512, max_rows=640, max_guesses=256, pages=32768, drafters=[], threads=1
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

    def token_bytes(self, kv_dtype: torch.dtype | None = None) -> int:
        """Nearly none."""
        return 1

    def new_pool(self, pages: int, page_size: int) -> KvPool:
        """One page, as nothing is written to any."""
        return super().new_pool(1, page_size)

    def logits(self, hidden: Tensor) -> Tensor:
        """The same for every row."""
        return self._logits[: len(hidden)]


class Watch:
    """An engine over ``target`` that answers ``streams`` of ``most`` tokens, and whose steps are measured by part."""

    def __init__(self, target: Target, streams: int, most: int) -> None:
        self._streams, self._seconds = streams, defaultdict[str, float](float)
        for part, owner, call in (
            ("plan", target.scheduler, "plan"),
            ("guesses", target.guessing, "draft"),
            ("guesses", target.guessing, "buy"),
            ("guesses", target.scheduler, "fill"),
            ("run", target.runner, "run"),
        ):
            setattr(owner, call, self._timed(getattr(owner, call), part))
        self._runs, self.engine = target.runner.times, target.engine()
        speculation = Speculation(off=not target.settings.drafters)
        for number in range(streams):
            prompt = [(7 * number + place) % target.model_limits.vocabulary_size for place in range(_PROMPT)]
            sampling = Sampling(temperature=1.0, seed=number)
            self.engine.submit(Request(str(number), "tenant", prompt, sampling, most, speculation=speculation))
        while self.engine.tally.steps < _FIRST or any(each.pending > 1 for each in self.engine.scheduler.running):
            self.engine.step()

    def _timed(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            began = time.perf_counter()
            result = call(*given)
            self._seconds[part] += time.perf_counter() - began
            return result

        return timed

    def step(self) -> list[float]:
        """Runs a step; returns its seconds by part, and last those of the whole.

        Raises:
            ValueError: an answer has ended.
        """
        if self.engine.load < self._streams:
            raise ValueError("an answer ended before the measurement did: fewer steps, please")
        runs, tally = self._runs, self.engine.tally
        forward, sample, ran = runs.forward_s, runs.sample_s, tally.run_s
        self._seconds.clear()
        began = time.perf_counter()
        self.engine.step()
        whole, parts = time.perf_counter() - began, self._seconds
        parts["batch"], parts["draw"] = runs.forward_s - forward, runs.sample_s - sample
        parts["commit"] = tally.run_s - ran - parts["run"]
        parts["rest"] = whole - sum(parts[part] for part in _PARTS[:-1])
        return [*(parts[part] for part in _PARTS), whole]


def measure(target: Callable[[], Target], streams: int, most: int, turns: int, turn: int) -> list[list[list[float]]]:
    """Seconds of each step by part, of two engines that take turns; all streams decode in each step."""
    watches = [Watch(target(), streams, most) for _ in range(2)]
    taken: list[list[list[float]]] = [[], []]
    for _ in range(turns):
        for watch, own in zip(watches, taken, strict=True):
            own += [watch.step() for _ in range(turn)]
    return taken


def describe(taken: Sequence[Sequence[Sequence[float]]]) -> tuple[str, float]:
    """Milliseconds: median and 10th percentile of the whole, those of the control, the 10th percentiles of parts.

    Also returns the 10th percentile of the whole.
    """
    columns = [[[1e3 * seconds for seconds in part] for part in zip(*own, strict=True)] for own in taken]
    tenths = [[quantiles(part, n=10)[0] for part in own] for own in columns]
    wholes = [f"{median(own[-1]):8.3f} {tenth[-1]:7.3f}" for own, tenth in zip(columns, tenths, strict=True)]
    return " ".join([*wholes, *(f"{part:7.3f}" for part in tenths[0][:-1])]), tenths[0][-1]


def main() -> int:
    """Prints a line for each mode and number of streams."""
    parser = argparse.ArgumentParser(prog="python -m outrider.benches.verifier.host_time", description=__doc__)
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8, 64, 128])
    parser.add_argument("--modes", nargs="+", choices=list(_MODES), default=list(_MODES))
    parser.add_argument("--turns", type=int, default=20, help="turns of each engine")
    parser.add_argument("--turn", type=int, default=10, help="steps of an engine in one turn")
    options = parser.parse_args()
    directory = store.obtain(_SETTINGS.model, "size")
    tokenizer = Tokenizer.load(directory)
    model = FreeModel(LlamaModel.load(directory), tokenizer.encode("!")[0])
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    print("ms a step: streams   median    10th, control: median 10th; 10th percentiles of", *_PARTS)
    for mode in options.modes:
        settings = replace(_SETTINGS, drafters=_MODES[mode])
        target = partial(Target.over, model, tokenizer, directory, settings, _ALWAYS, StepTelemetry())
        most, before = model.config.context_length - _PROMPT, (0, 0.0)
        for streams in options.streams:
            line, tenth = describe(measure(target, streams, most, options.turns, options.turn))
            further = 1e3 * (tenth - before[1]) / (streams - before[0])
            print(f"{mode:6} {streams:11} {line}; {further:.1f} us a further stream", flush=True)
            before = streams, tenth
    return 0


if __name__ == "__main__":
    sys.exit(main())
